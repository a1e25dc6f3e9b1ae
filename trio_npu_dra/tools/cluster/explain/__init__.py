"""Why a pod waits for devices, or why it got those that it has; pure."""
