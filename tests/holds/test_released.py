"""This version and those before 0.1.0 read each other's records."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.holds.entries import POOL, allocated, entry, held, module, of_piece
from tests.holds.released import Family, ReleasedClaim, ReleasedDevice, ReleasedRecord
from trio_npu_dra.agent.holds.encoding import encode, parse
from trio_npu_dra.agent.holds.entry import State
from trio_npu_dra.ascend.model import ChipFamily


def planned(
    number: int, *requests: str, admin_access: bool = False, family: Family = Family.ASCEND_910B
) -> ReleasedDevice:
    """What such a version makes of an NPU in an allocation."""
    node = f"/dev/davinci{number}"
    return ReleasedDevice(
        requests=requests or ("npu",),
        pool=POOL,
        device=f"npu-{number}",
        admin_access=admin_access,
        family=family,
        device_nodes={node: node},
    )


def written(*devices: ReleasedDevice) -> bytes:
    """A record of the first format."""
    claim = ReleasedClaim(namespace="default", name="uid-a", uid="uid-a")
    return ReleasedRecord(boot_id="boot", claim=claim, devices=devices).to_json()


def test_an_old_version_answers_from_our_record_and_guards_its_npus() -> None:
    """Its own plan of the same allocation is equal to what it reads."""
    read = ReleasedRecord.model_validate_json(encode(entry("uid-a", 2, 5)))

    assert read.has_devices_of((planned(2), planned(5)))
    assert read.holds(POOL, "npu-2")
    assert not read.holds(POOL, "npu-3")
    assert {node for device in read.devices for node in device.device_nodes} == {
        "/dev/davinci2",
        "/dev/davinci5",
    }


def test_own_and_admin_access_are_one_device_for_an_old_version() -> None:
    """As it would plan it."""
    ours = replace(
        entry("uid-a", 2),
        allocation=(allocated("npu-2", "look", admin_access=True), allocated("npu-2", "use")),
    )
    read = ReleasedRecord.model_validate_json(encode(ours))

    assert read.has_devices_of((planned(2, "look", "use"),))


def test_who_only_looks_on_keeps_nobody_away_from_an_old_version() -> None:
    """Also from no die of a module."""
    looking = replace(module("uid-a"), allocation=(allocated("module-1", admin_access=True),))
    for ours in (entry("uid-a", 2, admin_access=True), looking):
        read = ReleasedRecord.model_validate_json(encode(ours))
        assert not any(read.holds(POOL, name) for name in ("module-1", "npu-2", "npu-3"))


def test_an_old_version_guards_the_dies_of_a_module() -> None:
    """Which it would publish one by one; and it can make the module's CDI device."""
    read = ReleasedRecord.model_validate_json(encode(module("uid-a")))

    assert all(read.holds(POOL, name) for name in ("module-1", "npu-2", "npu-3"))
    assert not read.holds(POOL, "npu-4")
    by_name = {device.device: device for device in read.devices}
    assert list(by_name["module-1"].device_nodes) == ["/dev/davinci2", "/dev/davinci3"]


def test_an_old_version_guards_the_chip_of_a_piece() -> None:
    """Which it may publish as a whole; of two pieces of a chip it has the chip once."""
    one, other = of_piece("uid-a", 100), of_piece("uid-a", 101)
    both = replace(
        one, allocation=one.allocation + other.allocation, devices=one.devices + other.devices
    )
    read = ReleasedRecord.model_validate_json(encode(both))

    assert [device.device for device in read.devices] == [
        "npu-0-vnpu-100",
        "npu-0",
        "npu-0-vnpu-101",
    ]
    assert all(read.holds(POOL, device.device) for device in read.devices)
    assert read.devices[0].device_nodes == {"/dev/davinci100": "/dev/vdavinci100"}
    assert parse(encode(both), uid="uid-a") == both
    assert parse(read.to_json(), uid="uid-a") == both


def test_a_piece_holds_its_chip_as_a_piece() -> None:
    """By the chip's node, whether what the record says of its chips is understood or not."""
    ours = of_piece("uid-a", 100)
    wire = json.loads(encode(ours))
    for chips in (wire["chips"], {"npu-0-vnpu-100": "?"}):
        told = wire | {"chips": chips}
        (hold,) = parse(json.dumps(told).encode(), uid="uid-a").holds
        assert hold.nodes == {"/dev/davinci0"}
        assert hold.piece == ours.devices[0].piece


def test_an_old_version_keeps_what_it_does_not_know() -> None:
    """State, allocation, chips, steps and edits of our record survive its writing."""
    ours = replace(module("uid-a"), state=State.UNDOING, steps=("make-vnpu",))
    back = ReleasedRecord.model_validate_json(encode(ours)).to_json()

    assert json.loads(back) == json.loads(encode(ours))
    assert parse(back, uid="uid-a") == ours


def test_a_record_of_the_first_format_is_ready_for_its_allocation() -> None:
    """And holds its NPUs; its chips and its edits are not known."""
    read = parse(written(planned(2, "one", "two"), planned(3, admin_access=True)), uid="uid-a")

    assert read.state is State.READY
    assert read.allocation == (
        allocated("npu-2", "one", "two"),
        allocated("npu-3", admin_access=True),
    )
    assert read.devices == (held("npu-2", 2, is_known=False), held("npu-3", 3, is_known=False))
    assert [(sorted(hold.nodes), hold.observer) for hold in read.holds] == [
        (["/dev/davinci2"], False),
        (["/dev/davinci3"], True),
    ]
    assert (read.edits, read.steps, read.boot_id) == (None, (), "boot")


def test_a_record_of_the_first_format_is_rewritten_with_all_that_it_had() -> None:
    """Fields of whoever wrote them are kept; such a version can still read it."""
    old = json.loads(written(planned(2)))
    old["note"], old["devices"][0]["note"] = "kept", "kept"
    new = json.loads(encode(parse(json.dumps(old).encode(), uid="uid-a")))

    assert new["version"] == 2
    assert {**new, "version": 1}.items() >= old.items()
    assert ReleasedRecord.model_validate(new).has_devices_of((planned(2),))
    assert parse(json.dumps(new).encode(), uid="uid-a").allocation == (allocated("npu-2"),)


def test_all_families_of_the_first_format_are_known() -> None:
    """None was renamed."""
    assert {family.value for family in Family} <= {family.value for family in ChipFamily}
