"""How fast the driver is against a real kube-apiserver, beside the floors of the same machine."""
