"""The kubelet's side of the sockets, as cheap as Python can have it.

Messages are ready-made bytes and answers stay bytes until the clock has stopped, so that the clock
measures the driver. As in a kubelet, all calls and the health stream share one connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from trio_npu_dra.kit.grpc import UnaryMethod, methods
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

CALL_SECONDS = 45.0


class Caller:
    """A kubelet that has registered the driver behind a service socket."""

    def __init__(self, service: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{service}")
        self._prepare = self._channel.unary_unary(methods.NODE_PREPARE_RESOURCES_V1.path)
        self._unprepare = self._channel.unary_unary(methods.NODE_UNPREPARE_RESOURCES_V1.path)
        self._health = self._channel.unary_stream(methods.NODE_WATCH_RESOURCES_V1ALPHA1.path)(b"")
        threading.Thread(target=self._read_health, daemon=True).start()

    def prepare(self, *calls: Sequence[v1.Claim]) -> float:
        """Let the driver prepare claims, all *calls* at once.

        Returns:
            Milliseconds to the last answer.

        Raises:
            RuntimeError: A claim was not prepared.
        """
        return _timed(self._prepare, methods.NODE_PREPARE_RESOURCES_V1, calls)

    def unprepare(self, *calls: Sequence[v1.Claim]) -> float:
        """Let the driver unprepare claims; as `prepare`."""
        return _timed(self._unprepare, methods.NODE_UNPREPARE_RESOURCES_V1, calls)

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
        Its info, and when it came, on the clock of `time.time`.
    """
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        get_info = channel.unary_unary(methods.GET_INFO.path)
        answer, answered_at = get_info(b"", timeout=CALL_SECONDS), time.time()
        notify = channel.unary_unary(methods.NOTIFY_REGISTRATION_STATUS.path)
        notify(bytes(RegistrationStatus(plugin_registered=True)), timeout=CALL_SECONDS)
    return PluginInfo.parse(answer), answered_at


def _timed(call: Any, method: UnaryMethod[Any, Any], calls: Sequence[Sequence[v1.Claim]]) -> float:
    requests = [bytes(method.request(claims=list(claims))) for claims in calls]
    began = time.perf_counter()
    if len(requests) == 1:
        answers = [call(requests[0], timeout=CALL_SECONDS)]
    else:
        futures = [call.future(request, timeout=CALL_SECONDS) for request in requests]
        answers = [future.result() for future in futures]
    elapsed = 1000 * (time.perf_counter() - began)
    for answer, asked in zip(answers, calls, strict=True):
        claims = method.reply.parse(answer).claims
        if claims.keys() != {claim.uid for claim in asked}:
            raise RuntimeError(f"asked for {asked}, answered {claims}")
        for uid, each in claims.items():
            if each.error:
                raise RuntimeError(f"claim {uid}: {each.error}")
    return elapsed
