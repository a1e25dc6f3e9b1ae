"""What people ask the running daemon over its control socket: server, client and their messages.

Only root may connect. Probes and scrapes go to `observe` instead.
"""
