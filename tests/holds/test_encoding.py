"""Records are read as they were written, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.holds.entries import (
    allocated,
    chip,
    configured,
    entry,
    held,
    module,
    of_partition,
    reached,
)
from trio_npu_dra.agent.config.model import EffectiveConfig
from trio_npu_dra.agent.holds.encoding import encode, parse
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.ascend.model import ChipHealth
from trio_npu_dra.kit.base.errors import RecordCorrupt

METADATA: dict[str, Any] = {
    "npu": {
        "metadata": {"name": "a", "generation": 1},
        "requests": [{"name": "npu", "devices": [{"name": "npu-2", "attributes": {}}]}],
    }
}
ENTRIES = [
    entry("uid-a", 2, 5),
    module("uid-a"),
    of_partition("uid-a"),
    replace(entry("uid-a", 2), metadata=METADATA, doubted=True),
    replace(entry("uid-a"), state=EntryState.UNDOING, edits=None),
    reached("uid-a", "10.20.0.13/24", "10.20.0.1"),
    reached("uid-a", "fd00::13/64", "fe80::1"),
    entry("uid-a", 2, admin_access=True),
    replace(entry("uid-a"), state=EntryState.INTENDED, steps=("make", "flag"), boot_id="boot"),
    replace(entry("uid-a"), allocation=(allocated("npu-0", "a", "b", share_id="2"),)),
    configured("uid-a", EffectiveConfig(env=(("A", "1"), ("B", "")))),
    configured(
        "uid-a",
        EffectiveConfig(shared=True, container_libraries="none", driver_mounts=False),
    ),
]


def read(wire: Any) -> Entry:
    """The record of claim `uid-a`."""
    return parse(json.dumps(wire).encode(), uid="uid-a")


def wire_of(wanted: Entry, **changes: Any) -> dict[str, Any]:
    """The record as JSON, changed."""
    wire: dict[str, Any] = json.loads(encode(wanted))
    return wire | changes


@pytest.mark.parametrize("wanted", ENTRIES)
def test_an_entry_is_read_as_it_was_written(wanted: Entry) -> None:
    """With all facts of its chips but their health."""
    assert parse(encode(wanted), uid="uid-a") == wanted


def test_how_a_chip_was_is_not_remembered() -> None:
    """It would be believed when nobody can ask."""
    unhealthy = replace(chip(0), health=ChipHealth(unmonitored="hangs"))
    wanted = replace(entry("uid-a"), devices=(held("npu-0", 0)._replace(chips=(unhealthy,)),))
    assert parse(encode(wanted), uid="uid-a").devices[0].chips == (chip(0),)
    assert b"hangs" not in encode(wanted)


def test_the_boot_of_an_entry_is_the_one_it_is_written_in() -> None:
    """Not the one it was read with."""
    known = read(wire_of(entry("uid-a"), bootId="old"))
    assert json.loads(encode(replace(known, boot_id="new")))["bootId"] == "new"


def test_a_partition_holds_its_chip_as_a_partition() -> None:
    """By the chip's node."""
    ours = of_partition("uid-a", 100)
    (hold,) = read(wire_of(ours)).holds
    assert hold.nodes == {"/dev/davinci0"}
    assert hold.partition == ours.devices[0].partition


def test_a_field_that_is_not_known_is_left_out() -> None:
    """A version that needs one to be kept, or understood, raises that of the format."""
    wire = wire_of(entry("uid-a"))
    assert json.loads(encode(read(wire | {"policy": {"of": 1}}))) == wire


WIRE = wire_of(ENTRIES[0])
DEVICE = WIRE["devices"][0]
GIVEN = WIRE["allocation"][0]
DOCUMENT = METADATA["npu"]
OTHER_FORMS: list[tuple[dict[str, Any], str]] = [
    ({"version": 1}, "^version: 1 is of another version of the driver, this one knows 2$"),
    ({"version": 3}, "^version: 3 is of another version of the driver"),
    ({"version": 3, "claim": {}, "devices": []}, "^version: 3 is of another version of the driver"),
    ({"version": {"major": 3}}, "^version: "),
    ({"claim": {}}, "^claim.namespace: "),
    ({"state": "paused"}, "^state: "),
    ({"kind": "Job"}, "^kind: "),
    ({"bootId": 5}, "^bootId: "),
    ({"doubted": "perhaps"}, "^doubted: "),
    ({"steps": 5}, "^steps: "),
    ({"steps": [{"of": 1}]}, "^steps.0: "),
    ({"devices": []}, "^devices: .* at least 1 item"),
    ({"devices": [DEVICE, DEVICE]}, "^the whole: devices are not those of the allocation"),
    ({"devices": [DEVICE | {"family": "Ascend960"}]}, "^devices.0.family: "),
    ({"devices": [DEVICE | {"deviceNodes": {"/dev/a": "/dev/\0"}}]}, "^devices.0.deviceNodes"),
    ({"allocation": {"by": "pool"}}, "^allocation: "),
    ({"allocation": [GIVEN]}, "^the whole: devices are not those of the allocation"),
    ({"allocation": [GIVEN | {"config": {"gpuMemory": 1}}]}, "^allocation.0.config.gpuMemory: "),
    ({"allocation": [GIVEN | {"config": {"shared": 1}}]}, "^allocation.0.config.shared: "),
    ({"allocation": [GIVEN | {"config": 5}]}, "^allocation.0.config: "),
    ({"chips": [1]}, "^chips: "),
    ({"chips": {"npu-2": WIRE["chips"]["npu-2"]}}, "^the whole: chips lack those of a device"),
    ({"chips": WIRE["chips"] | {"npu-2": []}}, "^the whole: chips lack those of a device"),
    ({"chips": WIRE["chips"] | {"npu-2": [{"physicalId": 2, "dies": 4}]}}, "^chips.npu-2.0.ref: "),
    ({"pieces": {"npu-2": {"template": 5}}}, "^pieces.npu-2.template: "),
    ({"edits": "void"}, "^edits: "),
    ({"edits": None}, "^the whole: edits are missing$"),
    ({"metadata": [1]}, "^metadata: "),
    ({"metadata": {"../npu": DOCUMENT}}, "^metadata.../npu"),
    ({"metadata": {"npu": {"form": "another"}}}, "^metadata.npu.metadata: Field required$"),
    (
        {"metadata": {"npu": DOCUMENT | {"metadata": {"name": "a"}}}},
        "^metadata.npu.metadata.generation: ",
    ),
    ({"metadata": {"npu": DOCUMENT | {"requests": []}}}, "^metadata.npu.requests.0: "),
    (
        {"metadata": {"npu": DOCUMENT | {"requests": [{"devices": [{}]}]}}},
        "^metadata.npu.requests.0.devices.0",
    ),
]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "^the whole: Invalid JSON: EOF"),
        (b'{"version": 2, "claim":', "^the whole: Invalid JSON"),
        (b"[]", "^the whole: Input should be an object$"),
        (encode(entry("uid-b")), "claim.uid='uid-b' does not fit the file's name"),
        *((json.dumps(WIRE | changes).encode(), words) for changes, words in OTHER_FORMS),
    ],
)
def test_what_is_of_another_form_cannot_be_read(content: bytes, words: str) -> None:
    """The message names the field; nothing is guessed, so nothing later meets another form."""
    with pytest.raises(RecordCorrupt, match=words):
        parse(content, uid="uid-a")
