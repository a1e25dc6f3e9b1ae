"""What containers can read of their devices: a file for each request (KEP-5304).

That readers of Kubernetes accept the files is in `tests/e2e/test_metadata.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import DRIVER, NodeOnDisk, board, claim, ref, result
from trio_npu_dra.agent.claims.metadata import DeviceMetadata
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.claims.service import NodeClaims
from trio_npu_dra.agent.devices.npu_status import network_on_the_wire
from trio_npu_dra.ascend.model import Board, ChipNetwork
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.api.objects import ResourceClaim

PLACE = "/var/run/kubernetes.io/dra-device-attributes"
FILE = f"{DRIVER}-metadata.json"
TEMPLATE = {"resource.kubernetes.io/pod-claim-name": "of-pod"}


def attributes(offer: Offer, board: Board) -> Mapping[str, Any]:
    """One attribute: the name of the offer."""
    del board
    return {"offer": {"string": offer.name}}


METADATA = DeviceMetadata(
    driver_name=DRIVER,
    attributes=attributes,
    network=network_on_the_wire,
)


def with_addresses(last: int) -> Board:
    """A server whose NPUs have addresses in 10.0.N.0/24 that end in *last*."""
    chips = (
        replace(
            chip,
            network=ChipNetwork(addresses=(ip_interface(f"10.0.{chip.physical_id}.{last}/24"),)),
        )
        for chip in board().chips
    )
    return Board(chips=tuple(chips))


def annotated(claim: ResourceClaim, annotations: Mapping[str, str]) -> ResourceClaim:
    """The claim with annotations."""
    metadata = claim.metadata.model_copy(update={"annotations": annotations})
    return claim.model_copy(update={"metadata": metadata})


def device(name: str, ip: str = "") -> dict[str, Any]:
    """A device in a file."""
    addresses = {"networkData": {"ips": [ip]}} if ip else {}
    return {
        "driver": DRIVER,
        "pool": "node-1",
        "name": name,
        "attributes": {"offer": {"string": name}},
        **addresses,
    }


@pytest.fixture
def claims(node: NodeOnDisk) -> NodeClaims:
    """An instance on a server whose NPUs have addresses."""
    node.board.set(with_addresses(1))
    return node.start(metadata=METADATA)


def mounts(node: NodeOnDisk, uid: str = "uid-a") -> dict[str, tuple[str, str]]:
    """By its CDI id, what a device of a claim mounts: the host's path, the container's path."""
    spec = json.loads(node.cdi_path(uid).read_bytes())
    return {
        f"{spec['kind']}={one['name']}": (mount["hostPath"], mount["containerPath"])
        for one in spec["devices"]
        for mount in one["containerEdits"].get("mounts", ())
        if "ro" in mount["options"] and FILE in mount["containerPath"]
    }


def file_of(node: NodeOnDisk, request: str = "npu") -> Path:
    """The file of a request of claim a."""
    return node.state_folder / f"device-metadata/uid-a_{request}.json"


def read(node: NodeOnDisk, request: str = "npu") -> list[dict[str, Any]]:
    """The objects of a file of claim a."""
    return [json.loads(line) for line in file_of(node, request).read_text().splitlines()]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A claim `a`, the paths in containers, what each request has, and which device brings it."""

    claim: ResourceClaim
    paths: tuple[str, ...] = (f"resourceclaims/a/npu/{FILE}",)
    requests: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    brought_by: tuple[str, ...] = ("npu-2",)


CASES = {
    "two devices of a request": Case(
        claim=claim("a", result("npu-2"), result("npu-3")),
        requests={"npu": [device("npu-2", "10.0.2.1/24"), device("npu-3", "10.0.3.1/24")]},
    ),
    "of a template": Case(
        claim=annotated(claim("a", result("npu-2")), TEMPLATE),
        paths=(f"resourceclaimtemplates/of-pod/npu/{FILE}",),
        requests={"npu": [device("npu-2", "10.0.2.1/24")]},
    ),
    "a path for a name": Case(
        claim=annotated(claim("a", result("npu-2")), dict.fromkeys(TEMPLATE, "../../../etc")),
        requests={"npu": [device("npu-2", "10.0.2.1/24")]},
    ),
    "two requests, one with alternatives": Case(
        claim=claim("a", result("npu-2", "big/first"), result("npu-3", "small")),
        paths=(f"resourceclaims/a/big/{FILE}", f"resourceclaims/a/small/{FILE}"),
        requests={
            "big/first": [device("npu-2", "10.0.2.1/24")],
            "small": [device("npu-3", "10.0.3.1/24")],
        },
        brought_by=("npu-2", "npu-3"),
    ),
    "two shares of a device": Case(
        claim=claim("a", result("npu-2", share_id="s1"), result("npu-2", share_id="s2")),
        requests={"npu": [device("npu-2")]},
    ),
    "admin access": Case(
        claim=claim("a", result("npu-2", admin_access=True)),
        requests={"npu": [device("npu-2", "10.0.2.1/24")]},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_containers_of_a_request_get_its_file(
    case: Case, node: NodeOnDisk, claims: NodeClaims
) -> None:
    """Once, with the first device of the request; another prepare answers the same."""
    node.source.store(case.claim)
    answers = [(await claims.prepare([ref("a")]))["uid-a"].devices for _ in range(2)]

    assert answers[0] == answers[1]
    found = mounts(node)
    assert {path for _, path in found.values()} == {f"{PLACE}/{path}" for path in case.paths}
    by_id = {cdi: one.device for one in answers[0] for cdi in one.cdi_device_ids}
    assert tuple(by_id[cdi] for cdi in found) == case.brought_by
    for request, devices in case.requests.items():
        objects = read(node, request.partition("/")[0])
        assert [each["requests"] for each in objects] == [
            [{"name": request, "devices": devices}]
        ] * 2
        versions = [each["apiVersion"].rpartition("/")[2] for each in objects]
        assert versions == ["v1beta1", "v1alpha1"]


async def test_the_files_go_with_the_claim(node: NodeOnDisk, claims: NodeClaims) -> None:
    """And those of a request that an earlier allocation had."""
    node.source.store(claim("a", result("npu-2", "old")))
    await claims.prepare([ref("a")])
    node.source.store(claim("a", result("npu-2")))
    await claims.prepare([ref("a")])
    await claims.unprepare([ref("a")])

    assert not [*(node.state_folder / "device-metadata").iterdir()]


async def test_a_claim_keeps_what_it_has_when_the_flag_changes(
    node: NodeOnDisk, claims: NodeClaims
) -> None:
    """In both directions, as after a restart, which begins with reading the ledger."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    await claims.prepare([ref("a")])
    for metadata in (None, METADATA):
        ledger = node.ledger()
        async with ledger.exclusive():
            pass
        await node.start(ledger=ledger, metadata=metadata).prepare([ref("a"), ref("b")])

        assert (len(mounts(node)), len(mounts(node, "uid-b"))) == (1, 0)


async def test_the_repair_brings_files_back_and_removes_strays(
    node: NodeOnDisk, claims: NodeClaims, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Within five seconds; a damaged one at a start, in the file that containers have."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    await claims.prepare([ref("a")])
    whole, path = read(node), file_of(node)
    inode = path.stat().st_ino
    path.write_text("")
    (path.parent / "uid-gone_npu.json").write_text("{}")
    await nursery.start(keep_cdi_files, node.ledger(), node.cdi())

    assert read(node) == whole
    assert path.stat().st_ino == inode
    assert [*path.parent.iterdir()] == [path]

    path.unlink()
    await trio.sleep(5.1)
    assert read(node) == whole


async def test_files_after_a_power_cut(
    node: NodeOnDisk, claims: NodeClaims, nursery: trio.Nursery
) -> None:
    """They were not synced: those of the earlier boot go, and a prepare writes them anew."""
    node.source.store(claim("a", result("npu-2")))
    await claims.prepare([ref("a")])
    whole, path = read(node), file_of(node)
    path.write_text("")
    node.cdi_path("uid-a").write_text("")
    node.reboot()
    ledger = node.ledger()
    await nursery.start(keep_cdi_files, ledger, node.cdi())
    assert not path.exists()

    await node.start(ledger=ledger, metadata=METADATA).prepare([ref("a")])
    assert read(node) == whole


async def test_an_address_that_changes_is_written_into_the_file_that_containers_have(
    node: NodeOnDisk, claims: NodeClaims, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """With the next generation, and not again by the next look or a restart."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    await claims.prepare([ref("a")])
    path = file_of(node)
    inode = path.stat().st_ino
    keep = partial(keep_cdi_files, board=node.board, metadata=METADATA)
    await nursery.start(keep, node.ledger(), node.cdi())
    assert read(node)[0]["metadata"]["generation"] == 1

    node.board.set(with_addresses(9))
    await trio.sleep(5.1)
    node.board.set(board())  # none is known: the last ones stay
    await trio.sleep(5.1)
    await nursery.start(keep, node.ledger(), node.cdi())

    found = read(node)[0]
    assert found["requests"][0]["devices"] == [device("npu-2", "10.0.2.9/24")]
    assert found["metadata"]["generation"] == 2
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("changes", [{"uuid": "DIE-OTHER"}, {"gone": True}, {"unlisted": True}])
async def test_an_address_is_taken_from_the_claims_own_chip_alone(
    node: NodeOnDisk,
    claims: NodeClaims,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    changes: dict[str, Any],
) -> None:
    """Not from another die in its place, nor from the last facts of one that is not listed."""
    del autojump_clock
    own = replace(with_addresses(1).by_name["npu-2"], uuid="DIE-2")
    node.board.set(Board(chips=(own,)))
    node.source.store(claim("a", result("npu-2")))
    await claims.prepare([ref("a")])
    keep = partial(keep_cdi_files, board=node.board, metadata=METADATA)
    await nursery.start(keep, node.ledger(), node.cdi())

    other = replace(own, network=with_addresses(9).by_name["npu-2"].network, **changes)
    node.board.set(Board(chips=(other,)))
    await trio.sleep(5.1)
    assert read(node)[0]["requests"][0]["devices"] == [device("npu-2", "10.0.2.1/24")]


async def test_an_address_is_written_once_the_disk_takes_it(
    node: NodeOnDisk, claims: NodeClaims, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The record has it already, when somebody gives the folder back."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    await claims.prepare([ref("a")])
    keep = partial(keep_cdi_files, board=node.board, metadata=METADATA)
    await nursery.start(keep, node.ledger(), node.cdi())
    folder = node.state_folder / "device-metadata"
    aside = folder.rename(node.root / "aside")
    folder.symlink_to(aside)

    node.board.set(with_addresses(9))
    await trio.sleep(5.1)
    assert node.record("uid-a")["metadata"]["npu"]["metadata"]["generation"] == 2
    assert read(node)[0]["metadata"]["generation"] == 1
    folder.unlink()
    aside.rename(folder)
    await trio.sleep(5.1)

    assert read(node)[0]["requests"][0]["devices"] == [device("npu-2", "10.0.2.9/24")]
