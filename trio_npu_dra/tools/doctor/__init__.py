"""What else on a node serves NPUs, what is in the way, and what to do about it.

Each module looks at one subject. What it finds are facts, values of their own; its `judge` makes
findings of them, without effects. Nothing is locked, written, moved or removed.
"""
