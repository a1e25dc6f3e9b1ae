"""From Boards to ResourceSlices in the API server: build, plan the writes, publish."""
