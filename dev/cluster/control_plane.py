"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on the node's address."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.api import ApiServer
from dev.cluster.binaries import helm, kubernetes
from dev.cluster.certificates import Authority, Pair
from dev.cluster.network import SERVER_PORT, Network
from dev.cluster.processes import ClusterError, Program, run, wait_until
from dev.cluster.releases import DEFAULT, RELEASES, Release

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}

HELM_HOMES = ("CACHE", "CONFIG", "DATA")
"""Folders in which Helm keeps what belongs to its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """A running control plane.

    All of it listens in `network`. `admin` is a kubeconfig with all rights, `api` the server
    asked with that, `audit_log` the server's log of requests, `service_key` signs the tokens of
    service accounts.
    """

    network: Network
    programs: Path
    folder: Path
    logs: Path
    authority: Authority
    service_key: Pair
    admin: Path
    api: ApiServer
    audit_log: Path
    release: Release
    running: list[Program]

    @classmethod
    def start(
        cls,
        *,
        version: str = DEFAULT,
        folder: Path,
        logs: Path,
        network: Network | None = None,
        only_api: bool = False,
    ) -> ControlPlane:
        """Start it, or etcd and the API server alone, and wait until the server is ready.

        The version is a row of the table in `releases`. Without a network it listens on the
        machine's loopback.

        Raises:
            ClusterError: a part ended or the server was not ready in a minute.
        """
        folder.mkdir(parents=True)
        network = network or Network.loopback()
        authority = Authority.create(folder / "pki")
        admin = authority.kubeconfig(
            "admin", server=f"https://{network.address}", user="admin", group="system:masters"
        )
        plane = cls(
            network=network,
            programs=kubernetes(version).ready(),
            folder=folder,
            logs=logs,
            authority=authority,
            service_key=authority.issue("service-accounts", user="service-accounts"),
            admin=admin,
            api=ApiServer.of(admin, network=network.namespace),
            audit_log=logs / "audit.log",
            release=RELEASES[version],
            running=[],
        )
        try:
            plane._start_etcd()
            plane._start_apiserver()
            if not only_api:
                plane._start_controllers()
                plane._start_scheduler()
        except BaseException:
            plane.stop()
            raise
        return plane

    @property
    def address(self) -> str:
        """The address on which all of it listens."""
        return self.network.address

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}"

    @property
    def ca(self) -> Path:
        """The CA certificate of the server."""
        return self.authority.pair.certificate

    @property
    def gates(self) -> str:
        """The flag of every part, and of kubelets, with the feature gates of the release."""
        return f"--feature-gates={','.join(self.release.gates)}"

    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""
        return run(
            *self.network.inside,
            *(self.programs / "kubectl", *args),
            stdin=stdin,
            # As variables, because no flag may stand before the name of a plugin, which runs it
            # again.
            env={
                "KUBECONFIG": f"{self.admin}",
                "KUBECACHEDIR": f"{self.folder}/kubectl",
                "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            },
            timeout=300,
        )

    def helm(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run Helm as the administrator; returns its stdout, raises ClusterError."""
        return run(
            *(*self.network.inside, helm(), "--kubeconfig", self.admin, *args),
            stdin=stdin,
            # This machine's own settings and plugins of Helm are no part of the cluster.
            env={f"HELM_{kind}_HOME": f"{self.folder}/helm" for kind in HELM_HOMES},
            timeout=300,
        )

    def part(self, name: str) -> Program:
        """One of its running programs, by name."""
        return next(program for program in self.running if program.name == name)

    def restart_apiserver(self) -> None:
        """End the API server and start it again; raises ClusterError if it is not ready in 60 s."""
        with self.api_server_away():
            pass

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """End the API server for the block, and wait after it until it is ready again."""
        server = self.part("kube-apiserver")
        server.stop()
        self.running.remove(server)
        try:
            yield
        finally:
            self._start_apiserver()

    def stop(self) -> None:
        """Kill every part at once: nothing of it is kept."""
        self.api.close()
        while self.running:
            self.running.pop().kill()

    def _start(self, name: str, *flags: str) -> None:
        argv = [*self.network.inside, str(self.programs / name), *flags]
        self.running.append(Program.start(name, argv, logs=self.logs))

    def _start_etcd(self) -> None:
        client, peer = f"http://{self.address}:2379", f"http://{self.address}:2380"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_apiserver(self) -> None:
        serving = self.authority.issue(
            "apiserver",
            user="kube-apiserver",
            hosts=(f"IP:{self.address}", "DNS:kubernetes.default.svc", "DNS:localhost"),
        )
        to_kubelet = self.authority.issue(
            "apiserver-to-kubelet", user="kube-apiserver", group="system:masters"
        )
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://{self.address}:2379",
            f"--bind-address={self.address}",
            f"--secure-port={SERVER_PORT}",
            f"--service-cluster-ip-range={self.network.services}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.ca}",
            f"--kubelet-certificate-authority={self.ca}",
            f"--kubelet-client-certificate={to_kubelet.certificate}",
            f"--kubelet-client-key={to_kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.service_key.certificate}",
            f"--service-account-signing-key-file={self.service_key.key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            self.gates,
            f"--runtime-config={','.join(f'{api}=true' for api in self.release.apis)}",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
        )
        wait_until(self._ready, "kube-apiserver /readyz", timeout=60)

    def _start_controllers(self) -> None:
        user = "system:kube-controller-manager"
        config = self.authority.kubeconfig("controllers", server=self.server, user=user)
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--bind-address={self.address}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.service_key.key}",
            f"--root-ca-file={self.ca}",
            self.gates,
        )

    def _start_scheduler(self) -> None:
        user = "system:kube-scheduler"
        config = self.authority.kubeconfig("scheduler", server=self.server, user=user)
        self._start(
            "kube-scheduler",
            f"--kubeconfig={config}",
            f"--bind-address={self.address}",
            "--leader-elect=false",
            self.gates,
        )

    def _ready(self) -> bool:
        for program in self.running:
            program.check()
        try:
            return self.api.ask("GET", "/readyz") == "ok"
        except ClusterError:
            return False
