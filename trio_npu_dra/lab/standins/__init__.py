"""In-process stand-ins for the API server and the kubelet: for the demo and for tests."""
