"""What every node of a kind will publish, in the forms of autoscalers."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from dev.rig.parts import DRIVER, NODE, Rig, served_rig
from dev.rig.waiting import until
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.kit.api.objects import ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec
from trio_npu_dra.lab.cli import template
from trio_npu_dra.lab.simulator import Profile, create_board, load_profile

OWN = {
    *("uuid", "parentUUID", "cardId", "logicId", "driverVersion", "deviceShare"),
    *("superPodId", "superPodServerIndex", "superPodSdid", "resource.kubernetes.io/pciBusID"),
}
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("a3-16", {}),
    ("910b4-8", {"sharing": "shares"}),
    ("300i-pro-2", {"partitioning": "dynamic"}),
    ("950-pod-8", {}),
]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch, simulator: Path) -> None:
    """The simulator is compiled already."""
    monkeypatch.setattr(template, "create_board", partial(create_board, prebuilt=simulator))


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command, and has what it prints."""

    def run(*words: str) -> list[dict[str, Any]]:
        assert main(["template", *words]) == 0
        return list(yaml.safe_load_all(capsys.readouterr().out))

    return run


def another(kind: Profile) -> Profile:
    """Another node of a kind: with dies, versions, PCI addresses and a super pod of its own."""
    devices = [
        device.model_copy(
            update={
                "die_id": [*device.die_id[:-1], f"0A{device.physical_id:06X}"],
                "pci": device.pci.replace(":00.0", ":01.0"),
                "sdid": None if device.sdid is None else device.sdid + 1,
            }
        )
        for device in kind.devices
    ]
    pod = kind.super_pod and kind.super_pod.model_copy(update={"id": 9, "server_index": 1})
    return kind.model_copy(
        update={"devices": devices, "super_pod": pod, "driver_version": "26.1.0"}
    )


def from_node(rig: Rig) -> list[str]:
    """Flags that name the rig's node."""
    return [f"--from-node={NODE}", f"--kubeconfig={rig.kubeconfig}"]


def devices(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The devices of slices, by name."""
    return {
        device["name"]: device for each in documents for device in each["spec"].get("devices", [])
    }


@pytest.mark.parametrize(("kind", "flags"), KINDS)
async def test_a_node_without_what_is_its_own_is_the_template(
    kind: str, flags: dict[str, Any], folder: Path, simulator: Path, printed: Any
) -> None:
    """Of a board as of a node with that board; the attributes of one node alone are left out."""
    words = [f"--{name}={value}" for name, value in flags.items()]
    of_board = await trio.to_thread.run_sync(printed, f"--board={kind}", *words)
    profile = another(load_profile(kind))
    async with served_rig(folder, simulator, profile=profile, **flags) as rig, rig.registered():
        first = await rig.published()
        await until(lambda: len(rig.api.all(ResourceSlice)) == first.spec.pool.resource_slice_count)
        of_node = await trio.to_thread.run_sync(printed, *from_node(rig))
        published = devices([each.to_wire() for each in rig.api.all(ResourceSlice)])

    assert of_node == of_board
    kept = devices(of_board)
    assert kept.keys() == published.keys()
    for name, device in published.items():
        whole, part = device.pop("attributes"), kept[name].pop("attributes")
        assert whole.items() >= part.items()
        assert whole.keys() - part.keys() <= OWN
        assert device == kept[name]


@pytest.mark.parametrize("kind", ["a3-16", "910b4-8", "300i-duo-2"])
def test_karpenter_is_told_which_devices_match(kind: str, printed: Any) -> None:
    """It has no value of such an attribute; two devices are bound if a node gives them one."""
    (told,) = printed(f"--board={kind}", "-o=karpenter")
    found = devices([{"spec": each} for each in told["resourceSliceTemplates"]])
    bound = {
        (each["attribute"].removeprefix("npu.huawei.com/"), *sorted(pair))
        for each in told["attributeBindings"]
        for pair in combinations([one["device"] for one in each["devices"]], 2)
    }
    of_node = devices(printed(f"--board={kind}"))
    unknown = {
        (name, attribute): value
        for name, device in of_node.items()
        for attribute, value in device["attributes"].items()
        if attribute not in found[name]["attributes"]
    }
    equal = {
        (attribute, *sorted((name, other)))
        for ((name, attribute), one), ((other, same), two) in combinations(unknown.items(), 2)
        if attribute == same and one == two
    }
    assert bound == equal
    assert {one["attributes"]["type"]["string"] for one in found.values()} <= {"npu", "module"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--board=300i-pro-2 --partitioning=dynamic -o=draconfig", "a DRAConfig has no counters"),
        ("--board=910b4-8 --partitioning=dynamic --sharing=shares", "cannot be cut and divided"),
        ("--from-node=n --sharing=shares", "--sharing is for --board"),
        ("--board=a3-16 --context=c", "--context is for --from-node"),
    ],
)
def test_a_template_that_cannot_be_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that names the reason, and nothing is printed."""
    assert main(["template", *words.split()])
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out


async def test_a_pool_that_is_not_whole_is_no_template(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is one that is not there."""
    pool = ResourcePool(name=NODE, generation=2, resource_slice_count=2)
    spec = ResourceSliceSpec(driver=DRIVER, node_name=NODE, pool=pool)
    for said in ("node-a has no pool of npu.huawei.com", "1 of its 2 ResourceSlices"):
        assert await trio.to_thread.run_sync(main, ["template", *from_node(rig)]) == 1
        assert said in capsys.readouterr().err
        rig.api.add(ResourceSlice(metadata=ObjectMeta(generate_name="slice-"), spec=spec))


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--board=a3-16", "8"),
        ("--board=300i-pro-2 --partitioning=dynamic", "2"),
    ],
)
def test_cluster_api_is_told_how_many_whole_npus_there_are(
    words: str, count: str, printed: Any
) -> None:
    """Modules count once, partitions not at all: it makes no device that is one."""
    (found,) = printed(*words.split(), "-o=capi")
    assert sorted(found["metadata"]["annotations"].values()) == [count, DRIVER]
