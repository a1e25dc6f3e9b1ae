"""The API server, used as the scheduler and as an observer."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any

from dev.cluster.control_plane import ControlPlane
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim

NAMESPACE = "default"
REQUEST_SECONDS = 30.0

_CORE = "/api/v1"
_RESOURCE = "/apis/resource.k8s.io/v1"
_SLICES = f"{_RESOURCE}/resourceslices"
_CLAIMS = f"{_RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as a driver published it."""

    driver: str
    pool: str
    name: str


class Api:
    """One API server, with the rights of the administrator.

    Args:
        plane: Its control plane.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.address = plane.address
        pair = plane.authority.issue("benchmark", user="benchmark", group="system:masters")
        self.tls = ssl.create_default_context(cafile=plane.ca)
        self.tls.load_cert_chain(pair.certificate, pair.key)
        self._connection = self.connect()

    def connect(self) -> http.client.HTTPSConnection:
        """A connection of the caller's own."""
        return http.client.HTTPSConnection(self.address, context=self.tls, timeout=REQUEST_SECONDS)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request.

        Raises:
            RuntimeError: The API server refused it.
        """
        content = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        self._connection.request(method, path, content, headers)
        response = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.get('message', response.status)}")
        return answer

    def create_node(self, name: str) -> None:
        """Create a Node that a driver can publish for; it has no kubelet."""
        self.ask("POST", f"{_CORE}/nodes", {"metadata": {"name": name}})

    def create_token(self, node: str, namespace: str, account: str) -> str:
        """Create a Node, and a token of a service account that is bound to it, as a pod's is."""
        uid = self.ask("POST", f"{_CORE}/nodes", {"metadata": {"name": node}})["metadata"]["uid"]
        about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        path = f"{_CORE}/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.ask("POST", path, {"spec": {"boundObjectRef": about}})["status"]["token"]
        return token

    def devices(self, node: str) -> list[Device]:
        """All devices published for *node*, in the slices' order."""
        return [
            Device(
                driver=item["spec"]["driver"],
                pool=item["spec"]["pool"]["name"],
                name=device["name"],
            )
            for item in self.ask("GET", _SLICES)["items"]
            if item["spec"].get("nodeName") == node
            for device in item["spec"]["devices"]
        ]

    def remove_slices(self, node: str) -> None:
        """Delete the slices of *node*."""
        self.ask("DELETE", f"{_SLICES}?fieldSelector=spec.nodeName={node}")

    def create_claim(self, name: str, device: Device) -> Claim:
        """Create a claim to which the scheduler has given *device*."""
        request = {"name": "npu", "exactly": {"deviceClassName": "any"}}
        claim = self.ask(
            "POST",
            _CLAIMS,
            {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}},
        )
        result = {
            "request": "npu",
            "driver": device.driver,
            "pool": device.pool,
            "device": device.name,
        }
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.ask("PUT", f"{_CLAIMS}/{name}/status", claim)
        return Claim(namespace=NAMESPACE, uid=claim["metadata"]["uid"], name=name)


class SliceWatch:
    """Notes when the first ResourceSlice of a node is accepted.

    Args:
        api: The API server to watch.
        node: The node's name.
    """

    def __init__(self, api: Api, node: str) -> None:
        self._node = node
        self._seen_at = 0.0
        version = api.ask("GET", _SLICES)["metadata"]["resourceVersion"]
        self._connection = api.connect()
        self._connection.request("GET", f"{_SLICES}?watch=true&resourceVersion={version}")
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self) -> float:
        """The time when it was accepted, on the clock of `time.perf_counter`.

        Raises:
            RuntimeError: None came in half a minute.
        """
        self._thread.join(REQUEST_SECONDS)
        self._connection.close()
        if not self._seen_at:
            raise RuntimeError(f"no ResourceSlice for {self._node} in {REQUEST_SECONDS:g} s")
        return self._seen_at

    def _follow(self) -> None:
        for line in self._connection.getresponse():
            spec = json.loads(line)["object"].get("spec", {})
            if spec.get("nodeName") == self._node and spec.get("devices"):
                self._seen_at = time.perf_counter()
                return


class RawGets:
    """Bare GETs of claims: ready-made bytes on open connections.

    Args:
        api: The API server to ask.
        claims: The claims to read, each on a connection of its own.
    """

    def __init__(self, api: Api, claims: list[Claim]) -> None:
        self._pairs = [
            (self._connected(api), _request(api.address, claim.name)) for claim in claims
        ]

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

    @staticmethod
    def _connected(api: Api) -> ssl.SSLSocket:
        plain = socket.create_connection((api.address, 443), timeout=REQUEST_SECONDS)
        return api.tls.wrap_socket(plain, server_hostname=api.address)


def _request(host: str, name: str) -> bytes:
    return (
        f"GET {_CLAIMS}/{name} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\n\r\n"
    ).encode()


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
