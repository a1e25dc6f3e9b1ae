"""What people ask the running daemon over its control socket: server, client and what they say.

Root alone may connect. Nothing here is probed or scraped: that is what `observe` serves.
"""
