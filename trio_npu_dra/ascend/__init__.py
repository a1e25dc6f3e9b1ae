"""The node's NPUs: their facts, their health, and what a container needs to use them."""
