"""The example beside stand-ins: a whole driver on the kit alone, as a process of its own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from dev.rig.parts import kubeconfig
from dev.rig.waiting import HANG_SECONDS, until
from trio_npu_dra.kit.api.objects import (
    Allocation,
    AllocationResult,
    DeviceAllocation,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet

DRIVER, NODE = "lamp.example.com", "node-a"
COMMAND = (sys.executable, "-m", "trio_npu_dra.lab.example", f"--node={NODE}")
BROKEN = (f"{DRIVER}/trouble", "NoSchedule")


@dataclass(kw_only=True)
class House:
    """A node with lamps."""

    folder: Path
    api: ApiState = field(default_factory=ApiState)

    def lamp(self, name: str) -> Path:
        """The file of a lamp."""
        return self.folder / "lamps" / f"{name}.lamp"

    @property
    def registration(self) -> Path:
        """Where the kubelet finds the driver."""
        return self.folder / "plugins_registry" / f"{DRIVER}-reg.sock"

    @property
    def cdi_files(self) -> dict[str, object]:
        """What a container runtime reads, by the name of the file."""
        return {path.name: json.loads(path.read_text()) for path in self.folder.glob("cdi/*")}

    def claim(self, name: str, lamp: str) -> v1.Claim:
        """A claim that was given a lamp, by a subrequest."""
        result = AllocationResult(request="light/any", driver=DRIVER, pool=NODE, device=lamp)
        allocation = Allocation(devices=DeviceAllocation(results=(result,)))
        stored = self.api.add(
            ResourceClaim(
                metadata=ObjectMeta(name=name, namespace="default"),
                status=ResourceClaimStatus(allocation=allocation),
            )
        )
        return v1.Claim(namespace="default", uid=stored.metadata.uid or "", name=name)

    async def published(self, **lamps: tuple[str, str] | None) -> None:
        """Wait until the slice has just these lamps, with keys and effects of their taints."""
        await until(
            lambda: (
                lamps
                == {
                    device.name: next(((one.key, one.effect) for one in device.taints), None)
                    for item in self.api.all(ResourceSlice)
                    for device in item.spec.devices
                }
            )
        )


async def told(kubelet: Kubelet, **troubles: str) -> None:
    """Wait until the kubelet knows just these lamps: healthy without a trouble, else unhealthy."""
    expected = {
        (NODE, lamp): ("UNHEALTHY" if why else "HEALTHY", why) for lamp, why in troubles.items()
    }
    await kubelet.health.wait_until(
        lambda health: (
            {key: (one.health.name, one.message) for key, one in health.items()} == expected
        )
    )


@pytest.fixture
async def house(folder: Path) -> AsyncIterator[House]:
    """A node with two lamps, and its API server."""
    house = House(folder=folder)
    for name in ("lamps", "plugins", "plugins_registry"):
        (folder / name).mkdir()
    for lamp in ("attic", "desk"):
        house.lamp(lamp).touch()
    house.api.add(Node(metadata=ObjectMeta(name=NODE)))
    (folder / "kubeconfig").write_text(kubeconfig(folder / "api.sock"))
    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_api, house.api, folder / "api.sock")
            yield house
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(house: House) -> AsyncIterator[Kubelet]:
    """The driver, and the kubelet that has registered it; SIGTERM ends it without an error."""
    flags = (
        f"--lamps={house.folder}/lamps",
        f"--kubelet={house.folder}",
        f"--cdi={house.folder}/cdi",
        f"--kubeconfig={house.folder}/kubeconfig",
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(partial(trio.run_process, [*COMMAND, *flags]))
        async with open_kubelet(house.registration) as kubelet:
            yield kubelet
        process.send_signal(signal.SIGTERM)


async def test_a_lamp_goes_to_a_container_and_back(house: House) -> None:
    """Published, prepared twice, in a CDI file, unprepared twice; the slice outlives the driver."""
    claim = house.claim("reading", "desk")
    name = f"{claim.uid}-desk"
    async with running(house) as kubelet:
        await house.published(attic=None, desk=None)
        for _ in range(2):
            answer = (await kubelet.prepare([claim]))[claim.uid]
            (device,) = answer.devices
            assert (device.pool_name, device.device_name) == (NODE, "desk")
            assert device.request_names == ["light"]
            assert device.cdi_device_ids == [f"{DRIVER}/lamp={name}"]
        mount = {
            "hostPath": str(house.lamp("desk")),
            "containerPath": "/lamps/desk",
            "options": ["bind", "ro"],
        }
        edits = {"env": ["LAMP_DESK=/lamps/desk"], "mounts": [mount]}
        assert house.cdi_files == {
            f"{DRIVER}-lamp_{claim.uid}.json": {
                "cdiVersion": "0.5.0",
                "kind": f"{DRIVER}/lamp",
                "containerEdits": {},
                "devices": [{"name": name, "containerEdits": edits}],
            }
        }
        for _ in range(2):
            assert await kubelet.unprepare([claim]) == {claim.uid: ""}
        assert house.cdi_files == {}
    assert not house.registration.exists()
    await house.published(attic=None, desk=None)


async def test_a_lamp_gets_sick_recovers_and_goes(house: House) -> None:
    """A taint and the kubelet's stream say so; one that is gone is in neither, and not prepared."""
    async with running(house) as kubelet:
        await told(kubelet, attic="", desk="")
        house.lamp("desk").write_text("the bulb is broken\n")
        await told(kubelet, attic="", desk="the bulb is broken")
        await house.published(attic=None, desk=BROKEN)
        house.lamp("desk").write_text("")
        await told(kubelet, attic="", desk="")
        await house.published(attic=None, desk=None)
        house.lamp("desk").unlink()
        await told(kubelet, attic="")
        await house.published(attic=None)

        gone, here = house.claim("gone", "desk"), house.claim("here", "attic")
        answers = await kubelet.prepare([gone, here])
        assert "no lamp desk" in answers[gone.uid].error
        assert answers[here.uid].error == ""
        assert list(house.cdi_files) == [f"{DRIVER}-lamp_{here.uid}.json"]


async def test_what_is_wrong_with_the_flags_is_said_in_a_line(tmp_path: Path) -> None:
    """With status 2, and without a traceback."""
    missing = tmp_path / "kubeconfig"
    ended = await trio.run_process(
        [*COMMAND, f"--kubeconfig={missing}"], capture_stderr=True, check=False
    )
    (line,) = ended.stderr.decode().splitlines()
    assert ended.returncode == 2
    assert line.startswith("lamps: ")
    assert str(missing) in line
