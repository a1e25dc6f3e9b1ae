"""A Kubernetes client: the verbs and the object parts that a DRA driver needs, without devices.

Other packages import the public modules below. This `__init__` does not: it would load httpx and
YAML for commands that only parse objects. Each failure is retried in one place:

| failure | who retries |
|---|---|
| a kept-alive connection breaks under a GET; 401 with a replaced identity | `transport`, once |
| a watch ends, breaks or is refused; a list fails | `watch`, for ever, as `base.pace` says |
| an event is not understood | `watch`, by a new list: a watch would meet it again |
| anything else | the caller, if `error.retryable` (429, 5xx, no answer) |

The client never repeats a write: only its caller knows whether to read first. Every caller paces
itself by `base.pace`, with jitter, and waits as long as `Unavailable.retry_after` says.
"""

__all__ = [
    "claims",
    "client",
    "credentials",
    "events",
    "kubeconfig",
    "objects",
    "pages",
    "parsing",
    "paths",
    "pods",
    "quantity",
    "tls",
    "watch",
    "workloads",
]
