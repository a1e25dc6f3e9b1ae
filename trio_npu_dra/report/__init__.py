"""What others are told of the Board: the kubelet's device health."""
