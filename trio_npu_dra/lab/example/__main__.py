"""A DRA driver for lamps: a lamp is a file `NAME.lamp`, and the file says what is wrong with it."""

import os
import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

import trio

from trio_npu_dra.kit.api.claims import base_request, read_claim, results_of
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import load_credentials
from trio_npu_dra.kit.api.objects import Device, DeviceTaint
from trio_npu_dra.kit.base import logs, signals, storage, terminal
from trio_npu_dra.kit.base.cdi import CdiFiles, Edits
from trio_npu_dra.kit.base.errors import UnknownDevice
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_health import DeviceHealth, DeviceHealths
from trio_npu_dra.kit.kubelet.driver import ClaimByClaim, ClaimRef, PreparedDevice
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.kit.kubelet.plugin import serve_kubelet
from trio_npu_dra.kit.kubelet.registration import NOT_REGISTERED, wait_registered
from trio_npu_dra.kit.pool import PoolContent, PublisherStatus, publish


class Lamps(ClaimByClaim):
    """The lamps of one node, which are the files of a folder."""

    def __init__(self, flags: Namespace, kube: KubeClient) -> None:
        self.driver, self.node, self.folder, self.kube = flags.driver, flags.node, flags.lamps, kube
        self.cdi = CdiFiles(root=flags.cdi, driver_name=flags.driver, device_class="lamp")
        self.pool = Observable(PoolContent())
        self.health: Observable[DeviceHealths] = Observable(())

    async def watch(self) -> None:
        """Look every second: a lamp with a trouble is tainted, and its pod's status shows it."""
        taints = (DeviceTaint(key=f"{self.driver}/trouble", effect="NoSchedule"),)
        while True:
            devices, health = [], []
            for path in sorted(self.folder.glob("*.lamp")):
                content = storage.read_bytes(path) or b""
                why = content.decode(errors="replace").strip()
                state = HealthState.UNHEALTHY if why else HealthState.HEALTHY
                devices.append(Device(name=path.stem, taints=taints if why else ()))
                health.append(
                    DeviceHealth(pool=self.node, device=path.stem, state=state, message=why)
                )
            self.pool.set(PoolContent(devices=tuple(devices)))
            self.health.set(tuple(health))
            await trio.sleep(1)

    async def prepare_claim(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Write the claim's CDI file, which is the only record that this driver needs."""
        claim = await read_claim(self.kube, ref.name, ref.namespace)
        results = results_of(claim, uid=ref.uid, driver_name=self.driver, pool_name=self.node)
        edits = {self.cdi.device_name(ref.uid, it.device): self.edits(it.device) for it in results}
        self.cdi.write(ref.uid, self.cdi.spec(edits))
        return tuple(
            PreparedDevice(
                requests=(base_request(result.request),),
                pool=result.pool,
                device=result.device,
                cdi_device_ids=(self.cdi.device_id(ref.uid, result.device),),
            )
            for result in results
        )

    async def unprepare_claim(self, ref: ClaimRef) -> None:
        """Remove the file, if there is one."""
        self.cdi.remove(ref.uid)

    def edits(self, lamp: str) -> Edits:
        """What a container gets with a lamp: its file, and a variable that says where it is."""
        path, inside = self.folder / f"{lamp}.lamp", f"/lamps/{lamp}"
        if not path.exists():
            raise UnknownDevice(f"node {self.node} has no lamp {lamp} any more")
        mount = {"hostPath": str(path), "containerPath": inside, "options": ["bind", "ro"]}
        return {"env": [f"LAMP_{lamp.upper()}={inside}"], "mounts": [mount]}


async def serve(flags: Namespace) -> None:
    """Be the driver of one node until SIGTERM; the ResourceSlice stays for the next instance."""
    endpoints = Endpoints(
        driver_name=flags.driver,
        plugin_directory=flags.kubelet / "plugins" / flags.driver,
        registrar_directory=flags.kubelet / "plugins_registry",
    )
    access = load_credentials(flags.kubeconfig)
    async with open_client(access, user_agent=flags.driver) as kube, trio.open_nursery() as nursery:
        lamps, registration, stop = Lamps(flags, kube), Observable(NOT_REGISTERED), trio.Event()

        async def publish_lamps() -> None:
            await wait_registered(registration)  # else a pod may come before the kubelet knows us
            names = {"node_name": flags.node, "driver_name": flags.driver}
            await publish(kube, pool=lamps.pool, status=Observable(PublisherStatus()), **names)

        await nursery.start(signals.receive_signals, stop)
        nursery.start_soon(lamps.watch)
        nursery.start_soon(publish_lamps)
        await serve_kubelet(
            lamps, lamps.health, registration, endpoints=endpoints, stop=stop, grace_seconds=20
        )
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    parser = ArgumentParser(prog="lamps", description="A DRA driver for lamps.")
    parser.add_argument("--driver", default="lamp.example.com")
    parser.add_argument("--node", default=os.environ.get("NODE_NAME", os.uname().nodename))
    parser.add_argument("--lamps", default="/var/lib/lamps", type=Path)
    parser.add_argument("--kubelet", default="/var/lib/kubelet", type=Path)
    parser.add_argument("--cdi", default="/etc/cdi", type=Path)
    parser.add_argument("--kubeconfig", type=Path)
    logs.configure("info", "auto")
    sys.exit(terminal.exit_status("lamps", partial(trio.run, serve, parser.parse_args())))
