"""The API server, used as the scheduler and as an observer."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dev.cluster.control_plane import ControlPlane
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim

Wire = dict[str, Any]

NAMESPACE = "default"
REQUEST_SECONDS = 30.0

_CORE = "/api/v1"
_RESOURCE = "/apis/resource.k8s.io/v1"
SLICES = f"{_RESOURCE}/resourceslices"
_CLAIMS = f"{_RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"


class Api:
    """One API server, with the rights of the administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self.address = plane.address
        pair = plane.authority.issue("benchmark", user="benchmark", group="system:masters")
        self.tls = ssl.create_default_context(cafile=plane.ca)
        self.tls.load_cert_chain(pair.certificate, pair.key)
        self._server = plane.api

    def ask(self, method: str, path: str, body: Wire | None = None) -> Wire:
        """Make a request.

        Raises:
            ClusterError: The API server refused it.
        """
        answer: Wire = json.loads(self._server.ask(method, path, body))
        return answer

    def create_node(self, name: str) -> str:
        """Create a Node without a kubelet, for which a driver can publish; returns its UID."""
        made = self.ask("POST", f"{_CORE}/nodes", {"metadata": {"name": name}})
        return str(made["metadata"]["uid"])

    def create_token(self, node: str, namespace: str, account: str) -> str:
        """Create a Node, and a token of a service account that is bound to it, as a pod's is."""
        uid = self.create_node(node)
        about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        path = f"{_CORE}/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.ask("POST", path, {"spec": {"boundObjectRef": about}})["status"]["token"]
        return token

    def allocations(self, node: str) -> list[Wire]:
        """For each device published for *node*, in the slices' order, its allocation result."""
        return [
            {
                "request": "npu",
                "driver": item["spec"]["driver"],
                "pool": item["spec"]["pool"]["name"],
                "device": device["name"],
            }
            for item in self.ask("GET", f"{SLICES}?fieldSelector=spec.nodeName={node}")["items"]
            for device in item["spec"]["devices"]
        ]

    def remove_slices(self, node: str) -> None:
        """Delete the slices of *node*."""
        self.ask("DELETE", f"{SLICES}?fieldSelector=spec.nodeName={node}")

    def create_claim(self, name: str, allocation: Wire) -> Claim:
        """Create a claim to which the scheduler has given a device."""
        request = {"name": "npu", "exactly": {"deviceClassName": "any"}}
        claim = self.ask(
            "POST",
            _CLAIMS,
            {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}},
        )
        claim["status"] = {"allocation": {"devices": {"results": [allocation]}}}
        self.ask("PUT", f"{_CLAIMS}/{name}/status", claim)
        return Claim(namespace=NAMESPACE, uid=claim["metadata"]["uid"], name=name)


class SliceWatch:
    """A watch of the ResourceSlices of a node, as the scheduler has it, from now on.

    Args:
        api: The API server to watch.
        node: The node's name.
        driver: The only driver whose slices are watched; by default all are.
    """

    def __init__(self, api: Api, node: str, *, driver: str = "") -> None:
        fields = f"spec.nodeName={node}" + (f",spec.driver={driver}" if driver else "")
        path = f"{SLICES}?fieldSelector={fields}"
        version = api.ask("GET", path)["metadata"]["resourceVersion"]
        self._path = path
        self._events: list[tuple[float, list[Wire]]] = []
        self._news = threading.Condition()
        self._connection = http.client.HTTPSConnection(
            api.address, context=api.tls, timeout=REQUEST_SECONDS
        )
        self._connection.request("GET", f"{path}&watch=true&resourceVersion={version}")
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self, shows: Callable[[list[Wire]], bool], *, since: float = 0.0) -> float:
        """Wait for an event, not earlier than *since*, whose devices are as wanted.

        Returns:
            When it came, on the clock of `time.time`.

        Raises:
            RuntimeError: None came in half a minute.
        """

        def found() -> float | None:
            fitting = (at for at, devices in self._events if at >= since and shows(devices))
            return next(fitting, None)

        with self._news:
            at = self._news.wait_for(found, REQUEST_SECONDS)
        if at is None:
            raise RuntimeError(f"nothing new from {self._path} in {REQUEST_SECONDS:g} s")
        return at

    def close(self) -> None:
        """Close the watch."""
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _follow(self) -> None:
        with suppress(OSError, http.client.HTTPException):  # closed
            for line in self._connection.getresponse():
                at, devices = time.time(), json.loads(line)["object"]["spec"].get("devices", [])
                with self._news:
                    self._events.append((at, devices))
                    self._news.notify_all()


class RawGets:
    """Bare GETs of claims: ready-made bytes, each claim on an open connection of its own."""

    def __init__(self, api: Api, claims: list[Claim]) -> None:
        self._pairs = []
        headers = f"host: {api.address}\r\naccept: application/json"
        for claim in claims:
            plain = socket.create_connection((api.address, 443), timeout=REQUEST_SECONDS)
            connection = api.tls.wrap_socket(plain, server_hostname=api.address)
            request = f"GET {_CLAIMS}/{claim.name} HTTP/1.1\r\n{headers}\r\n\r\n"
            self._pairs.append((connection, request.encode()))

    def ask(self, count: int) -> None:
        """Read the first *count* claims at once.

        Raises:
            RuntimeError: An answer is not 200.
        """
        pairs = self._pairs[:count]
        for connection, request in pairs:
            connection.sendall(request)
        for connection, _ in pairs:
            _read_answer(connection)

    def close(self) -> None:
        """Close the connections."""
        for connection, _ in self._pairs:
            connection.close()


def _read_answer(connection: ssl.SSLSocket) -> None:
    head, rest = b"", b""
    while not rest:
        head += connection.recv(65536)
        head, _, rest = head.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"GET of a claim: {head[:80]!r}")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(rest) < length:
        rest += connection.recv(65536)
