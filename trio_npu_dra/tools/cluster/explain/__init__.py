"""Why a pod waits for devices, or why it got its devices: pure functions of a `ClusterView`.

It must not ask the API server or know the form of the output. Other rooms import `verdict` and
`job` (the questions), `explanation` and `funnel` (the answers) and `words`.
"""

__all__ = ["explanation", "funnel", "job", "verdict", "words"]
