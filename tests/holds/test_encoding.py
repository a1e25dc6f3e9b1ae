"""Records are read as far as they are known, and written back whole."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from trio_npu_dra.agent.config.effective import EffectiveConfig
from trio_npu_dra.agent.holds.encoding import encode, parse
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.ascend.model import ChipFamily, ChipHealth
from trio_npu_dra.kit.base.errors import RecordCorrupt

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
# A later version names its fields in camel case, as this one does.
UNKNOWN = st.dictionaries(st.sampled_from(["shareOf", "template", "policy"]), JSON)

ENTRIES = [
    entry("uid-a", 2, 5),
    module("uid-a"),
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


def test_metadata_that_a_claim_has_no_more_is_not_remembered() -> None:
    """As when the flag is off, and it is planned anew."""
    known = read(wire_of(entry("uid-a"), metadata={"npu": {"requests": []}}))
    assert "metadata" not in json.loads(encode(replace(known, metadata={})))


def test_how_a_chip_was_is_not_remembered() -> None:
    """It would be believed when nobody can ask."""
    unhealthy = replace(chip(0), health=ChipHealth(unmonitored="hangs"))
    wanted = replace(entry("uid-a"), devices=(held("npu-0", 0)._replace(chips=(unhealthy,)),))
    assert parse(encode(wanted), uid="uid-a").devices[0].chips == (chip(0),)
    assert b"hangs" not in encode(wanted)


@given(top=UNKNOWN, inner=UNKNOWN, version=st.integers(2, 9), wanted=st.sampled_from(ENTRIES))
def test_what_is_not_known_is_written_back(
    top: dict[str, Any], inner: dict[str, Any], version: int, wanted: Entry
) -> None:
    """At every level, and the version; also when the state changes."""
    wire = wire_of(wanted, version=version) | top
    for parts in (wire["devices"], wire["allocation"]):
        parts[:] = [inner | part for part in parts]
    wire["claim"] = inner | wire["claim"]
    newer = read(wire)

    assert newer == wanted
    assert json.loads(encode(newer)) == wire
    other = replace(newer, state=EntryState.UNDOING, steps=())
    assert json.loads(encode(other)) == wire | {"state": "undoing", "steps": []}


NEWER: dict[str, dict[str, Any]] = {
    "state": {"state": "paused"},
    "kind": {"kind": "Pod"},
    "version": {"version": 7},
    "family": {"devices": [wire_of(entry("uid-a", 2))["devices"][0] | {"family": "Ascend960"}]},
    "chips": {"chips": {"npu-2": [{"physicalId": 2, "dies": 4}]}},
    "chips of another form": {"chips": [1]},
    "edits": {"edits": "void"},
    "metadata": {"metadata": [1]},
}


@pytest.mark.parametrize("changes", NEWER.values(), ids=NEWER)
def test_a_record_of_a_newer_version_answers_and_guards_as_far_as_it_is_known(
    changes: dict[str, Any],
) -> None:
    """It is never set aside for what this version does not know, and nothing of it is lost."""
    wire = wire_of(entry("uid-a", 2), version=3) | changes
    newer = read(wire)

    assert newer.state is EntryState.READY
    assert newer.allocation == (allocated("npu-2"),)
    assert [sorted(hold.nodes) for hold in newer.holds] == [["/dev/davinci2"]]
    assert json.loads(encode(newer)) == wire


@pytest.mark.parametrize("allocation", [{"by": "pool"}, [wire_of(module("a"))["allocation"][0]]])
def test_an_allocation_of_a_newer_version_is_guarded_and_not_answered(allocation: Any) -> None:
    """Nor is a CDI file made of it: its config is not known either."""
    wire = wire_of(entry("uid-a", 2), version=3, allocation=allocation)
    newer = read(wire)

    assert newer.allocation == ()
    assert not newer.devices[0].can_be_rendered
    assert [(sorted(hold.nodes), hold.observer) for hold in newer.holds] == [
        (["/dev/davinci2"], False)
    ]
    assert json.loads(encode(newer)) == wire


@pytest.mark.parametrize(
    "config",
    [{"gpuMemory": 1}, {"containerLibraries": "ldso"}, {"env": {"A": 1}}, {"shared": 1}, 5],
)
def test_a_config_of_a_newer_version_is_left_as_it_is(config: Any) -> None:
    """Nobody takes it for another one, or makes a CDI file of what is known of it."""
    wire = wire_of(entry("uid-a", 2))
    wire["allocation"][0]["config"] = config
    newer = read(wire)

    assert newer.allocation != (allocated("npu-2"),)
    assert not newer.devices[0].can_be_rendered
    assert not newer.devices[0].shared
    assert json.loads(encode(newer)) == wire


def test_what_a_newer_version_knows_is_not_guessed() -> None:
    """Neither its families nor its kinds of holders nor its steps."""
    wire = wire_of(entry("uid-a", 2), **NEWER["family"], kind="Job", steps=["split", {"of": 1}])
    newer = read(wire)

    assert newer.devices[0].family is None
    assert newer.holder.kind is HolderKind.OTHER
    assert newer.steps == ("split", "{'of': 1}")
    assert read(wire_of(entry("uid-a", 2), steps=5)).steps == ("5",)
    a3 = wire_of(module("uid-a"))
    a3["chips"]["module-1"][0]["family"] = "Ascend960"
    assert read(a3).devices[0].chips == ()
    assert read(a3).devices[0].family is ChipFamily.ASCEND_910_A3


@pytest.mark.parametrize(("version", "written"), [("7", 2), (7, 7)])
def test_a_record_can_be_written_whatever_its_version_looks_like(
    version: object, written: int
) -> None:
    """An integer is what it always was."""
    assert json.loads(encode(read(wire_of(entry("uid-a"), version=version))))["version"] == written


def test_the_boot_of_an_entry_is_the_one_it_is_written_in() -> None:
    """Not the one it was read with."""
    known = read(wire_of(entry("uid-a"), bootId="old"))
    assert json.loads(encode(replace(known, boot_id="new")))["bootId"] == "new"


def test_a_device_without_facts_of_its_chips_is_not_known_wholly() -> None:
    """One of a family of a newer version counts as known: nothing can be found out of it here."""
    known = entry("uid-a", 2, 3)
    assert known.knows_its_chips
    assert not replace(
        known, devices=(known.devices[0], held("npu-3", 3, is_known=False))
    ).knows_its_chips
    unknown = held("npu-3", 3, is_known=False)._replace(family=None)
    assert replace(known, devices=(known.devices[0], unknown)).knows_its_chips


def test_a_partition_holds_its_chip_as_a_partition() -> None:
    """By the chip's node, whether what the record says of its chips is understood or not."""
    ours = of_partition("uid-a", 100)
    for chips in (wire_of(ours)["chips"], {"npu-0-vnpu-100": "?"}):
        (hold,) = read(wire_of(ours, chips=chips)).holds
        assert hold.nodes == {"/dev/davinci0"}
        assert hold.partition == ours.devices[0].partition


DEVICE = wire_of(entry("uid-a"))["devices"][0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "^it is empty$"),
        (b'{"version": 2, "claim":', "^the whole: Invalid JSON"),
        (b"[]", "^the whole: Input should be an object$"),
        (b'{"version": 1, "claim": {}, "devices": []}', "^version: .* greater than or equal to 2"),
        (b'{"version": 2, "claim": {}, "devices": []}', "^claim.namespace: "),
        (b'{"version": 3, "claim": {}, "devices": []}', "^format 3 is of a newer driver"),
        (encode(entry("uid-b")), "claim.uid='uid-b' does not fit the file's name"),
        (json.dumps(wire_of(entry("uid-a"), devices=[])).encode(), "^devices: .* at least 1 item"),
        (
            json.dumps(wire_of(entry("uid-a"), devices=[DEVICE, DEVICE])).encode(),
            "^devices: Value error, npu-0 is there twice",
        ),
    ],
)
def test_what_is_no_record_is_said_by_field(content: bytes, words: str) -> None:
    """As far as that can be told; a claim without devices, or with one twice, is none either."""
    with pytest.raises(RecordCorrupt, match=words):
        parse(content, uid="uid-a")
