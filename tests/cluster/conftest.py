"""The tests of the cluster itself."""

pytest_plugins = ["tests.cluster.plugin"]
