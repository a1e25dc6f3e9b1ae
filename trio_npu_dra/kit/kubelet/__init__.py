"""What a kubelet plugin owes the kubelet: registration, claims and device health, over gRPC.

Pure trio, and knows nothing of NPUs: it serves any implementation of `Driver`.
"""
