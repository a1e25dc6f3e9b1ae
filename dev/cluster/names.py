"""The cluster's DNS: the names of headless Services and of the pods behind them.

A process in the cluster's network; `python -m dev.cluster.names ADDRESS KUBECONFIG` answers on UDP
port 53 of the address, by what EndpointSlices say at that moment.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from dev.cluster.api import ApiServer
from dev.cluster.network import Network
from dev.cluster.processes import ClusterError, Program

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?:([^.]+)\.)?([^.]+)\.([^.]+)\.svc\.cluster\.local")
HEADER = 12
TYPE_A = b"\0\1"
A_QUESTION = b"\xc0\x0c"  # a pointer to the name in the question
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3


def start_names(network: Network, kubeconfig: Path, *, logs: Path) -> Program:
    """Answer on the network's address; ends with this process at the latest."""
    serve = (sys.executable, "-m", "dev.cluster.names", network.address, kubeconfig)
    return Program.start("names", [*network.inside, "env", f"PYTHONPATH={ROOT}", *serve], logs=logs)


def main(address: str, kubeconfig: str) -> None:
    """Answer until the process is ended."""
    api = ApiServer.of(Path(kubeconfig))
    with socket.socket(type=socket.SOCK_DGRAM) as port:
        port.bind((address, 53))
        while True:
            query, client = port.recvfrom(512)
            port.sendto(answer(api, query), client)


def answer(api: ApiServer, query: bytes) -> bytes:
    """The answer to a query with one question (RFC 1035, 4.1)."""
    labels = list(_labels(query))
    end = HEADER + sum(len(label) + 1 for label in labels) + 1
    question = query[HEADER : end + 4]
    try:
        found = addresses(api, b".".join(labels).decode().lower())
        code = NO_ERROR if found else NO_SUCH_NAME
    except ClusterError:
        found, code = [], SERVER_FAILURE
    if question[-4:-2] != TYPE_A:
        found = []
    records = (
        A_QUESTION + TYPE_A + b"\0\1" + bytes(4) + b"\0\4" + IPv4Address(each).packed
        for each in found
    )
    flags = bytes((0x84 | query[2] & 1, 0x80 | code))
    counts = b"\0\1" + len(found).to_bytes(2, "big") + bytes(4)
    return query[:2] + flags + counts + question + b"".join(records)


def addresses(api: ApiServer, name: str) -> list[str]:
    """The addresses of a whole name: of all pods of a Service, or of the one with that hostname."""
    parts = NAME.fullmatch(name)
    if parts is None:
        return []
    host, service, namespace = parts.groups()
    path = api.resource("endpointslices").path(namespace)
    slices = api.read(path, labelSelector=f"kubernetes.io/service-name={service}")["items"]
    endpoints = [endpoint for each in slices for endpoint in each["endpoints"] or []]
    return [
        address
        for endpoint in endpoints
        if host in {None, endpoint.get("hostname")}
        for address in endpoint["addresses"]
    ]


def _labels(query: bytes) -> Iterator[bytes]:
    place = HEADER
    while length := query[place]:
        yield query[place + 1 : place + 1 + length]
        place += 1 + length


if __name__ == "__main__":
    main(*sys.argv[1:])
