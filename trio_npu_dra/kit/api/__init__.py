"""The raw Kubernetes client: the verbs and object parts this driver needs.

Which code retries which failure, each rule in one place:

| failure | retried by |
|---|---|
| a kept-alive connection breaks under a GET; 401 with a replaced identity | `transport`, once |
| a watch ends, breaks or is refused; a list fails | `watch`, for ever, as `retry` paces it |
| an event is not understood | `watch`, by a new list: a watch would meet it again |
| anything else | the caller, if `error.retryable` (429, 5xx, no answer) |

The client never repeats a write: only its caller knows whether to read first. Every caller paces
itself with jitter and waits as long as `Unavailable.retry_after` says: loops by `retry`, claims
within the kubelet's call by `claims.patience`, which tries again after 401 and 403 too. An answer
that is not understood (`Unreadable`) lasts longer than an outage: then `retry` waits up to five
minutes.
"""
