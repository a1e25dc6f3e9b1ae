"""Claims on this node: what each needs, who holds which NPU, and the CDI files that hand it out."""
