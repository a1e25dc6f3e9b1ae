"""The raw Kubernetes client: the verbs and object parts this driver needs, over httpx."""
