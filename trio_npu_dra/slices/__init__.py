"""From facts about NPUs to ResourceSlices in the API server: build, diff, publish."""
