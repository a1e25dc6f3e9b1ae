"""Who only looks sees the holds and changes nothing."""

from pathlib import Path

from tests.holds.entries import entry
from trio_npu_dra.agent.holds.files import read_holds, read_records
from trio_npu_dra.agent.holds.ledger import Ledger


async def test_the_holds_of_the_records_are_seen(tmp_path: Path) -> None:
    """Those of this boot, of records that can be read; what else is there stays as it is."""
    ledger = Ledger(tmp_path)
    async with ledger.exclusive():
        ledger.put(entry("uid-a"))
        ledger.put(entry("uid-b", 1))
    claims = tmp_path / "claims"
    (claims / "uid-c.json").write_text("{")
    (claims / ".uid-d.json.0123abcd").touch()
    before = {path.name: path.read_bytes() for path in claims.iterdir()}

    assert read_holds(tmp_path) == ledger.holds.value

    assert {path.name: path.read_bytes() for path in claims.iterdir()} == before


async def test_records_of_an_earlier_boot_hold_nothing(tmp_path: Path) -> None:
    """No container has survived it."""
    boot = tmp_path / "boot_id"
    boot.write_text("first")
    ledger = Ledger(tmp_path, boot_id_file=boot)
    async with ledger.exclusive():
        ledger.put(entry("uid-a"))

    boot.write_text("second")

    assert read_holds(tmp_path, boot_id_file=boot) == ()


def test_a_folder_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    """Nobody says then that an NPU is free."""
    assert read_holds(tmp_path / "none") is None


async def test_records_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """With the reason."""
    ledger = Ledger(tmp_path)
    async with ledger.exclusive():
        ledger.put(entry("uid-a"))
    (tmp_path / "claims/uid-c.json").write_text("{")

    records = read_records(tmp_path)

    assert list(records.entries) == ["uid-a"]
    assert records.entries["uid-a"].holds == ledger.holds.value
    (why,) = records.unreadable.values()
    assert "the whole" in why
