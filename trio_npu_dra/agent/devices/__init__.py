"""What is handed out, as devices of the node's pool: taints, counters and shares with them."""
