"""A node without hardware or cluster: the simulated library, stand-ins, the demo."""
