"""How `kubectl npu` gets at the cluster that a kubeconfig names; no daemon may."""
