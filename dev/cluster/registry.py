"""A registry in the cluster's network; pushed images stay in the cache."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import cache
from dev.cluster.network import Network
from dev.cluster.processes import Program, wait_until

PORT = 5000


def storage() -> Path:
    """The folder of the pushed images."""
    return cache() / "registry"


def configuration(address: str) -> str:
    """What a registry reads that listens on an address; on all, if that is empty."""
    return json.dumps(  # JSON is YAML
        {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(storage())}},
            "http": {"addr": f"{address}:{PORT}"},
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A running registry; it ends by itself if no `program` is given."""

    network: Network
    program: Program | None = None

    @property
    def host(self) -> str:
        """The prefix of an image's name."""
        return f"{self.network.address}:{PORT}"

    @classmethod
    def start(cls, network: Network, *, folder: Path, logs: Path) -> Registry:
        """Start it and wait until it listens; its configuration goes into `folder`."""
        config = folder / "registry.json"
        config.write_text(configuration(network.address))
        serve = [*network.inside, "docker-registry", "serve", str(config)]
        program = Program.start("registry", serve, logs=logs)
        registry = cls(network=network, program=program)

        def listens() -> bool:
            program.check()
            return network.listens(PORT)

        try:
            wait_until(listens, "the registry listens", timeout=20)
        except BaseException:
            registry.stop()
            raise
        return registry

    def serve_all(self, certs: Path) -> None:
        """Take the place of every registry for a containerd whose `config_path` is that folder."""
        place = certs / "_default"
        place.mkdir(parents=True)
        (place / "hosts.toml").write_text(
            f'server = "http://{self.host}"\n'
            f'[host."http://{self.host}"]\n'
            'capabilities = ["pull", "resolve"]\n'
        )

    def stop(self) -> None:
        """End it."""
        if self.program:
            self.program.stop(grace=3)
