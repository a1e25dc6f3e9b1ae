"""The API server, asked from this process with all rights, or with a token.

A run of kubectl takes 0.15 s of processor time, and tests that wait ask many times a second. This
module keeps a few connections open instead. Tests call kubectl where people would.
"""

from __future__ import annotations

import ctypes
import json
import os
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpcore
import yaml

from dev.cluster.processes import ClusterError

Object = dict[str, Any]

GROUPS = (
    *("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/resource.k8s.io/v1"),
    *("/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"),
    "/apis/discovery.k8s.io/v1",
)
"""The URLs of the kinds that tests name."""
SECONDS = 60.0
"""The longest wait for an answer."""
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
CLONE_NEWNET = 0x40000000
NO_ANSWER = (
    *(OSError, httpcore.NetworkError, httpcore.TimeoutException),
    httpcore.RemoteProtocolError,  # the server closed the connection
)


class NotThere(ClusterError):
    """The API server knows no such object (404)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """The place of the objects of a kind."""

    base: str
    plural: str
    is_namespaced: bool

    def path(self, namespace: str | None, *name: str) -> str:
        """The path of an object, or without a name that of all objects.

        Args:
            namespace: All namespaces if None; ignored for kinds without namespaces.
            name: The object's name, and perhaps a subresource.
        """
        place = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return "/".join((self.base, *place, self.plural, *name))


class _Inside(httpcore.SyncBackend):
    """Connects from within another network namespace."""

    def __init__(self, network: Path) -> None:
        self._network = network

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        """Connect in a thread that enters the namespace; the socket stays there."""
        with ThreadPoolExecutor(1, initializer=_enter, initargs=(self._network,)) as thread:
            return thread.submit(super().connect_tcp, *args, **kwargs).result()


def _enter(network: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with network.open("rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(network))


class ApiServer:
    """An API server and the identity that asks it; every thread may use it.

    Args:
        url: Its address.
        authority: The certificate that vouches for it, in PEM.
        network: The namespace that reaches it (`/proc/<pid>/ns/net`); None for this process's own.
        pair: The client's certificate and key, in PEM.
        token: The client's token, if it has no certificate.
    """

    def __init__(
        self,
        url: str,
        authority: str,
        *,
        network: Path | None = None,
        pair: bytes = b"",
        token: str = "",
    ) -> None:
        self._url, self._authority, self._network = url, authority, network
        self._headers: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {}
        tls = ssl.create_default_context(cadata=authority)
        if pair:
            with tempfile.NamedTemporaryFile() as pem:
                pem.write(pair)
                pem.flush()
                tls.load_cert_chain(pem.name)
        backend = _Inside(network) if network else httpcore.SyncBackend()
        self._pool = httpcore.ConnectionPool(ssl_context=tls, network_backend=backend)

    @classmethod
    def of(cls, kubeconfig: Path, *, network: Path | None = None) -> ApiServer:
        """The server of a kubeconfig with one cluster, one user, and their keys inside."""
        config = yaml.safe_load(kubeconfig.read_text())
        (cluster,), (user,) = config["clusters"], config["users"]
        return cls(
            cluster["cluster"]["server"],
            b64decode(cluster["cluster"]["certificate-authority-data"]).decode(),
            network=network,
            pair=b"\n".join(
                b64decode(user["user"][f"client-{part}-data"]) for part in ("certificate", "key")
            ),
        )

    @contextmanager
    def asked_with(self, token: str) -> Iterator[ApiServer]:
        """This server, asked with a token."""
        other = ApiServer(self._url, self._authority, network=self._network, token=token)
        try:
            yield other
        finally:
            other.close()

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._pool.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content: str = JSON,
        query: Mapping[str, str | int] | None = None,
    ) -> str:
        """Make a request.

        Returns:
            The body of the answer.

        Raises:
            NotThere: The status is 404.
            ClusterError: Another error, with the server's message, or no answer.
        """
        url = f"{self._url}{path}"
        if query:
            url += ("&" if "?" in path else "?") + urlencode(query)
        try:
            answer = self._pool.request(
                method,
                url,
                headers=[*self._headers.items(), ("Content-Type", content)],
                content=None if body is None else json.dumps(body).encode(),
                extensions={"timeout": dict.fromkeys(("connect", "read", "write"), SECONDS)},
            )
        except NO_ANSWER as lost:
            raise ClusterError(f"{method} {path}: no answer: {lost!r}") from lost
        text = answer.content.decode(errors="replace")
        if answer.status >= 400:
            kind = NotThere if answer.status == 404 else ClusterError
            raise kind(f"{method} {path}: {answer.status}: {_words(text)}")
        return text

    def read(self, path: str, **query: str | int) -> Object:
        """GET an object."""
        found: Object = json.loads(self.ask("GET", path, query=query))
        return found

    def resource(self, kind: str) -> Resource:
        """The place of the objects of a kind, named as for kubectl: `pod` or `pods`."""
        try:
            return self._resources[kind.lower()]
        except KeyError:
            raise ClusterError(f"kind {kind}: not in {', '.join(GROUPS)}") from None

    def create(self, about: Object, *, namespace: str = "default", dry_run: bool = False) -> Object:
        """Create an object, or do a dry run of that; returns it as stored."""
        path = self.resource(about["kind"]).path(namespace)
        made: Object = json.loads(self.ask("POST", path, about, query=_dry(dry_run)))
        return made

    def replace(self, about: Object, *, dry_run: bool = False) -> Object:
        """Replace an object that was read; returns it as stored."""
        names = about["metadata"]
        path = self.resource(about["kind"]).path(names.get("namespace"), names["name"])
        made: Object = json.loads(self.ask("PUT", path, about, query=_dry(dry_run)))
        return made

    def apply(self, objects: Iterable[Object], *, namespace: str = "default") -> None:
        """Create or change objects, in that order."""
        for about in objects:
            place = about["metadata"].get("namespace", namespace)
            path = self.resource(about["kind"]).path(place, about["metadata"]["name"])
            query = {"fieldManager": "tests", "force": "true"}
            self.ask("PATCH", path, about, content=APPLY, query=query)

    def patch(
        self,
        kind: str,
        *name: str,
        change: Object,
        namespace: str | None = "default",
        dry_run: bool = False,
    ) -> None:
        """Change fields of an object, or of the subresource named after it; None removes one."""
        path = self.resource(kind).path(namespace, *name)
        self.ask("PATCH", path, change, content=MERGE, query=_dry(dry_run))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = "default",
        grace: int | None = None,
        foreground: bool = False,
        dry_run: bool = False,
    ) -> str:
        """Begin to delete an object; returns its UID, empty if there was none of that name.

        `grace` is in seconds; 0 removes a pod from the server before its containers have ended.
        With `foreground` the object stays until all objects that it owns are gone.
        """
        options: Object = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = self.resource(kind).path(namespace, name)
        try:
            said = json.loads(self.ask("DELETE", path, options, query=_dry(dry_run)))
        except NotThere:
            return ""
        about = said["details"] if said["kind"] == "Status" else said["metadata"]
        return str(about["uid"])

    @cached_property
    def _resources(self) -> dict[str, Resource]:
        found = {}
        for base in GROUPS:
            for item in self.read(base)["resources"]:
                if "/" not in item["name"]:
                    where = Resource(
                        base=base, plural=item["name"], is_namespaced=item["namespaced"]
                    )
                    found[item["name"]] = found[item["singularName"]] = where
        return found


def _dry(dry_run: bool) -> Mapping[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _words(text: str) -> str:
    """The message of a Status, or the whole answer if it is none."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
