"""What people run: they look at a node or a cluster, and change neither."""
