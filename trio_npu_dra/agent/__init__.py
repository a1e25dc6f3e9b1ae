"""What runs on a node; it knows neither the tools for people nor the simulator."""
