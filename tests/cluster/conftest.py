"""The tests of the cluster itself."""

pytest_plugins = ["dev.cluster.plugin"]
