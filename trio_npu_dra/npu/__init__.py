"""The node's NPUs: what they are, how they are, and how a container gets at them."""
