"""The kubelet's side of the sockets, as cheap as Python can have it.

Messages are ready-made bytes and answers stay bytes until the clock has stopped, so that the clock
measures the driver. As in a kubelet, all calls and the health stream share one connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from trio_npu_dra.kit.grpc import UnaryMethod, methods
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

CALL_SECONDS = 45.0


class Caller:
    """A kubelet that has registered one driver.

    Args:
        service: The driver's service socket.
    """

    def __init__(self, service: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{service}")
        self._prepare = _unary(self._channel, methods.PREPARE_V1)
        self._unprepare = _unary(self._channel, methods.UNPREPARE_V1)
        self._health = self._channel.unary_stream(methods.WATCH_V1ALPHA1.path)(b"")
        threading.Thread(target=self._read_health, daemon=True).start()

    def prepare(self, *calls: Sequence[v1.Claim]) -> float:
        """Let the driver prepare claims, all *calls* at once.

        Returns:
            Milliseconds to the last answer.

        Raises:
            RuntimeError: A claim was not prepared.
        """
        requests = [bytes(v1.NodePrepareResourcesRequest(claims=list(call))) for call in calls]
        answers, elapsed = _timed(self._prepare, requests)
        for answer, asked in zip(answers, calls, strict=True):
            _check(v1.NodePrepareResourcesResponse.parse(answer).claims, asked)
        return elapsed

    def unprepare(self, *calls: Sequence[v1.Claim]) -> float:
        """Let the driver unprepare claims, all *calls* at once.

        Returns:
            Milliseconds to the last answer.

        Raises:
            RuntimeError: A claim was not unprepared.
        """
        requests = [bytes(v1.NodeUnprepareResourcesRequest(claims=list(call))) for call in calls]
        answers, elapsed = _timed(self._unprepare, requests)
        for answer, asked in zip(answers, calls, strict=True):
            _check(v1.NodeUnprepareResourcesResponse.parse(answer).claims, asked)
        return elapsed

    def close(self) -> None:
        """Close the connection."""
        self._health.cancel()
        self._channel.close()

    def _read_health(self) -> None:
        with suppress(grpc.RpcError):  # not every driver reports health, and ours has closed
            for _ in self._health:
                pass


def register(socket: Path) -> tuple[PluginInfo, float]:
    """Ask the driver behind a registration socket for its info, and register it.

    Returns:
        Its info, and when it came, on the clock of `time.perf_counter`.
    """
    with _connected(socket) as channel:
        call = _unary(channel, methods.GET_INFO)
        answer, said_at = call(b"", timeout=CALL_SECONDS), time.perf_counter()
        status = bytes(RegistrationStatus(plugin_registered=True))
        _unary(channel, methods.NOTIFY_REGISTRATION)(status, timeout=CALL_SECONDS)
    return PluginInfo.parse(answer), said_at


@contextmanager
def _connected(socket: Path) -> Iterator[Any]:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        yield channel


def _unary(channel: Any, method: UnaryMethod[Any, Any]) -> Any:
    return channel.unary_unary(method.path)


def _timed(method: Any, requests: Sequence[bytes]) -> tuple[list[bytes], float]:
    began = time.perf_counter()
    if len(requests) == 1:
        answers = [method(requests[0], timeout=CALL_SECONDS)]
    else:
        futures = [method.future(request, timeout=CALL_SECONDS) for request in requests]
        answers = [future.result() for future in futures]
    return answers, 1000 * (time.perf_counter() - began)


def _check(answers: dict[str, Any], asked: Sequence[v1.Claim]) -> None:
    if answers.keys() != {claim.uid for claim in asked}:
        raise RuntimeError(f"asked for {asked}, answered {answers}")
    for uid, answer in answers.items():
        if answer.error:
            raise RuntimeError(f"claim {uid}: {answer.error}")
