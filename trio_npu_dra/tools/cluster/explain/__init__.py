"""Why a pod waits for devices, or why it got its devices: pure functions of a `ClusterView`.

It must not ask the API server or know the form of the output. Other packages import `answer` and
`job` (the questions and their answers) and `funnel`.
"""

__all__ = ["answer", "funnel", "job"]
