"""Records survive restarts, newer versions and broken neighbours."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims.node import NodeOnDisk
from tests.synced import syncs
from trio_npu_dra.claims.record import ClaimRecord, RecordedClaim, RecordedDevice
from trio_npu_dra.claims.records import Records
from trio_npu_dra.errors import RecordCorrupt, StorageError
from trio_npu_dra.npu.model import ChipFamily

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
# A later version names its fields in camel case, as this one does.
UNKNOWN = st.dictionaries(st.sampled_from(["shareOf", "template", "policy"]), JSON)


def device(name: str = "npu-0", *, admin_access: bool = False) -> RecordedDevice:
    """A device of a record."""
    return RecordedDevice(
        requests=("npu",),
        pool="node-1",
        device=name,
        admin_access=admin_access,
        family=ChipFamily.ASCEND_910B,
        device_nodes={"/dev/davinci0": "/dev/davinci0"},
    )


def record(uid: str, *devices: RecordedDevice) -> ClaimRecord:
    """A record of claim `default/<uid>`."""
    return ClaimRecord(
        claim=RecordedClaim(namespace="default", name=uid, uid=uid), devices=devices or (device(),)
    )


@st.composite
def wire_records(draw: st.DrawFn) -> dict[str, Any]:
    """The JSON of a record of this or a later version."""
    devices = [
        draw(UNKNOWN)
        | {
            "requests": draw(st.lists(st.text(max_size=8), max_size=3)),
            "pool": draw(st.text(max_size=8)),
            "device": f"npu-{number}",
            "adminAccess": draw(st.booleans()),
            "family": draw(st.sampled_from(ChipFamily)).value,
            "deviceNodes": {f"/dev/davinci{number}": f"/dev/davinci{number}"},
        }
        for number in range(draw(st.integers(0, 3)))
    ]
    claim = draw(UNKNOWN) | {"namespace": "default", "name": "a", "uid": "uid-a"}
    version = draw(st.integers(1, 9))
    known = {"version": version, "bootId": draw(st.text(max_size=8))}
    return draw(UNKNOWN) | known | {"claim": claim, "devices": devices}


@given(wire_records())
def test_a_record_is_written_back_as_it_was_read(wire: dict[str, Any]) -> None:
    """With the fields of a newer version, at every level, and its version number."""
    read = ClaimRecord.parse(json.dumps(wire).encode(), uid="uid-a")

    assert json.loads(read.to_json()) == wire
    assert ClaimRecord.parse(read.to_json(), uid="uid-a") == read


@given(wire_records())
def test_unknown_fields_do_not_make_devices_differ(wire: dict[str, Any]) -> None:
    """An allocation can be compared with a newer version's record."""
    newer = ClaimRecord.parse(json.dumps(wire).encode(), uid="uid-a")
    names = RecordedDevice.model_fields
    known = [
        RecordedDevice(**{name: getattr(device, name) for name in names})
        for device in newer.devices
    ]

    assert newer.has_devices_of(newer.model_copy(update={"devices": tuple(known)}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the whole: Invalid JSON"),
        (b'{"version": 1, "claim":', "the whole: Invalid JSON"),
        (b"[]", "the whole"),
        (b'{"version": 0, "claim": {}, "devices": []}', "version: "),
        (b'{"version": 1, "claim": {}, "devices": []}', "^claim.namespace: "),
        (b'{"version": 2, "claim": {}, "devices": []}', "^format 2 is of a newer driver"),
        (record("uid-b").to_json(), "claim.uid='uid-b' does not fit the file's name"),
    ],
)
def test_what_is_no_record_is_said_by_field(content: bytes, words: str) -> None:
    """As far as that can be told."""
    with pytest.raises(RecordCorrupt, match=words):
        ClaimRecord.parse(content, uid="uid-a")


async def test_records_are_read_by_the_next_instance(tmp_path: Path) -> None:
    """One file each, with the format's version."""
    first = Records(tmp_path)
    async with first.exclusive():
        first.put(record("uid-a"))
        first.put(record("uid-b", device("npu-1")))

    second = Records(tmp_path)
    async with second.exclusive():
        assert second.by_uid == first.by_uid

    wire = json.loads((tmp_path / "claims/uid-a.json").read_bytes())
    assert wire["version"] == 1
    assert wire["claim"] == {"namespace": "default", "name": "uid-a", "uid": "uid-a"}


async def test_records_without_a_boot_id_are_read_by_the_next_instance(tmp_path: Path) -> None:
    """A kernel that does not tell it costs no record."""
    first, second = (Records(tmp_path, boot_id_file=tmp_path / "none") for _ in range(2))
    async with first.exclusive():
        first.put(record("uid-a"))
    async with second.exclusive():
        assert set(second.by_uid) == {"uid-a"}
    assert second.by_uid["uid-a"].boot_id == ""


async def test_a_record_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    """After a power cut it is whole or absent."""
    records = Records(tmp_path)
    async with records.exclusive():
        with syncs(tmp_path / "claims") as states:
            records.put(record("uid-a"))

    ((name, content),) = states[0].items()
    assert len(states) == 1
    assert name.startswith(".uid-a.json.")
    assert content == (tmp_path / "claims/uid-a.json").read_bytes()


async def test_another_instance_sees_every_change_at_once(quick_node: NodeOnDisk) -> None:
    """However quickly writes follow each other."""
    one, two = quick_node.records(), quick_node.records()
    for number in range(200):
        writer, reader = (one, two) if number % 2 else (two, one)
        async with writer.exclusive():
            writer.put(record(f"uid-{number}"))
        async with reader.exclusive():
            assert f"uid-{number}" in reader.by_uid


async def test_records_are_not_read_again_while_nobody_else_writes(tmp_path: Path) -> None:
    """A prepare does not cost more on a node with many claims."""
    records = Records(tmp_path)
    async with records.exclusive():
        records.put(record("uid-a"))
    (tmp_path / "claims/uid-a.json").write_bytes(b"not read")

    async with records.exclusive():
        assert "uid-a" in records.by_uid


async def test_a_removed_record_is_gone_for_good(tmp_path: Path) -> None:
    """And removing an unknown one is fine."""
    records = Records(tmp_path)
    async with records.exclusive():
        records.put(record("uid-a"))
    async with records.exclusive():
        records.remove("uid-a")
        records.remove("uid-b")

    assert not records.by_uid
    assert list((tmp_path / "claims").iterdir()) == []


async def test_only_a_claim_that_uses_a_device_holds_it(tmp_path: Path) -> None:
    """Admin access looks on."""
    records = Records(tmp_path)
    async with records.exclusive():
        records.put(record("looks-on", device("npu-1", admin_access=True)))
        assert records.holder(device("npu-1")) is None
        records.put(record("uses", device("npu-1")))
        assert str(records.holder(device("npu-1"))) == "default/uses"
        assert records.holder(device("npu-2")) is None


async def test_a_broken_record_is_set_aside_and_the_others_live_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is kept for people to look at, and shouted about once."""
    first = Records(tmp_path)
    async with first.exclusive():
        first.put(record("uid-a"))
        first.put(record("uid-b", device("npu-1")))
    (tmp_path / "claims/uid-a.json").write_bytes(b'{"version": 1, "cl')

    for _ in range(2):
        records = Records(tmp_path)
        async with records.exclusive():
            assert set(records.by_uid) == {"uid-b"}
            assert records.unreadable == {"uid-a"}

    assert (tmp_path / "claims/uid-a.json.aside").read_bytes() == b'{"version": 1, "cl'
    assert len([line for line in caplog.records if line.levelno == logging.ERROR]) == 1

    async with records.exclusive():
        records.remove("uid-a")
    assert records.unreadable == frozenset()
    assert [path.name for path in (tmp_path / "claims").iterdir()] == ["uid-b.json"]


async def test_a_claim_that_was_prepared_again_is_not_overtaken_by_what_was_set_aside(
    tmp_path: Path,
) -> None:
    """A version that can read the old record does not take it for the claim's."""
    records = Records(tmp_path)
    async with records.exclusive():
        records.put(record("uid-a"))
    file = tmp_path / "claims/uid-a.json"
    right = file.read_bytes()
    file.write_bytes(b"{")
    records = Records(tmp_path)
    async with records.exclusive():
        assert records.unreadable == {"uid-a"}
        records.put(record("uid-a", device("npu-1")))
        assert records.unreadable == frozenset()
    file.with_name("uid-a.json.aside").write_bytes(right)

    records = Records(tmp_path)
    async with records.exclusive():
        assert records.by_uid["uid-a"].device_names == ["npu-1"]


async def test_a_record_changes_in_the_critical_section_only(tmp_path: Path) -> None:
    """Before and after it another instance may be at it."""
    records = Records(tmp_path)
    for _ in range(2):
        with pytest.raises(AssertionError, match="inside exclusive"):
            records.put(record("uid-a"))
        async with records.exclusive():
            pass


async def test_a_file_of_somebody_is_no_record_that_cannot_be_read(tmp_path: Path) -> None:
    """Nothing is guarded for it."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/notes.txt").write_text("")
    records = Records(tmp_path)
    async with records.exclusive():
        assert records.unreadable == frozenset()
    assert (tmp_path / "claims/notes.txt").exists()


async def test_unfinished_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    """They are no records."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/.uid-a.json.5f3a01c2").write_bytes(b'{"vers')

    async with Records(tmp_path).exclusive():
        pass

    assert list((tmp_path / "claims").iterdir()) == []


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "claims").write_text("")

    with pytest.raises(StorageError, match=r"cannot make .*/claims: a file is in its place"):
        async with Records(tmp_path).exclusive():
            pytest.fail("entered")


async def test_a_write_that_fails_keeps_memory_true(node: NodeOnDisk) -> None:
    """What is not on the disk is not held."""
    records = node.records()

    async with records.exclusive():
        shutil.rmtree(node.records_folder)
        with pytest.raises(StorageError, match=r"cannot write .*/claims/uid-a\.json"):
            records.put(record("uid-a"))

    assert not records.by_uid
