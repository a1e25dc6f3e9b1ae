"""A loopback address of a cluster's own, so that every part has its usual port on it."""

from __future__ import annotations

import os
import socket

SERVER_PORT = 443
"""Pods find the server under its service address and this port, with no proxy between."""


def free() -> str:
    """A loopback network that no other cluster uses: its first address.

    The services' range is this network, and the service `kubernetes` gets its
    first address: the API server listens just there, so a pod on the host's
    network reaches it without kube-proxy.

    Raises:
        OSError: no network out of many is free.
    """
    for attempt in range(256):
        number = os.getpid() + attempt
        address = f"127.{64 + (number >> 8) % 64}.{number % 256}.1"
        with socket.socket() as probe:
            if probe.connect_ex((address, SERVER_PORT)) != 0:
                return address
    raise OSError("no free loopback network for a cluster")


def network(address: str) -> str:
    """The services' range that belongs to an address of `free`."""
    return f"{address.rpartition('.')[0]}.0/24"
