"""Which claim holds which NPU, in one file a claim: what survives a restart of this driver.

The kubelet does not prepare a running pod's claims again when only this driver restarts, so nothing
that may still be true is thrown away:

- A record of a newer version is read as far as it is known, and written back whole.
- A record that cannot be read costs its own claim only. A broken one is set aside under a name
  that each start looks at again: a newer version that comes back, or a person, may read it. One
  that the disk does not give stays where it is. Either way its claim is *unreadable*: it keeps its
  CDI file, and that file still guards its NPUs (`claims.prepare`).

A reboot of the node is the exception: records of an earlier boot are forgotten. No container has
survived it, so they would only hold NPUs against the next claim, until the kubelet unprepares them
a minute later; and the NPUs may be numbered anew, so that a CDI file made from such a record could
give another one's. Nothing is lost by it: the kubelet keeps no *prepared* mark over a restart, and
prepares the claims of each pod again before it starts the pod's containers anew.

So a record is synced to the disk, to be whole or absent after a power cut, but its folder is not:
a name that the power cut loses, or brings back, is one that the next start would have forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from trio_npu_dra import storage
from trio_npu_dra.claims.record import ClaimRecord, RecordedDevice
from trio_npu_dra.claims.serialize import NodeLock, Turn
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import RecordCorrupt, StorageError

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Where Linux says which boot this is, in containers too."""

_SUFFIX = ".json"
_ASIDE = ".json.aside"


class Records:
    """All claim records of the node, held in memory; files change with them, inside `exclusive`.

    Args:
        state_folder: Holds `claims/<uid>.json` and `serialize.lock`; made when missing.
        boot_id_file: Tells the boot of the node; without it no record is of an earlier one.
    """

    def __init__(self, state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> None:
        self._folder = state_folder / "claims"
        self._lock = NodeLock(state_folder / "serialize.lock")
        self._boot_id = _read_boot_id(boot_id_file)
        self._turn: Turn | None = None
        self._mark: bytes | None = None
        self._by_uid: dict[str, ClaimRecord] = {}
        self._unreadable: set[str] = set()
        self._withheld: set[str] = set()

    @property
    def by_uid(self) -> Mapping[str, ClaimRecord]:
        """Records by claim UID, as of the last critical section."""
        return MappingProxyType(self._by_uid)

    @property
    def unreadable(self) -> AbstractSet[str]:
        """UIDs of claims whose record cannot be read; their pods may still run."""
        return frozenset(self._unreadable)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """The node's critical section: records are up to date within.

        There is no checkpoint between the start of the body and the end of the section but those of
        the body.

        Raises:
            StorageError: The lock, a record or the folder cannot be used. What was put or removed
                inside then holds already.
        """
        if self._mark is None:
            self._make_folder()
        async with self._lock.hold() as turn:
            if turn.mark != self._mark or self._withheld:
                self._load(turn)
            self._turn = turn
            try:
                yield
            finally:
                self._turn = None

    def holder(self, device: RecordedDevice) -> ClaimRecord | None:
        """The claim that holds *device* for itself."""
        return next(
            (
                record
                for record in self._by_uid.values()
                for held in record.devices
                if not held.admin_access
                and (held.pool, held.device) == (device.pool, device.device)
            ),
            None,
        )

    def put(self, record: ClaimRecord) -> None:
        """Write *record*.

        Raises:
            StorageError: The disk is full, read-only, or fails; the old record stays.
        """
        self._announce_change()
        record = record.model_copy(update={"boot_id": self._boot_id})
        storage.write_atomic(
            self._path(record.uid),
            record.to_json(),
            before_rename=Point.PREPARE_RECORD_WRITTEN,
        )
        reached(Point.PREPARE_RECORD_RENAMED)
        self._by_uid[record.uid] = record
        self._unreadable.discard(record.uid)
        self._withheld.discard(record.uid)

    def remove(self, uid: str) -> None:
        """Remove the record of the claim *uid*, or what was set aside of it.

        Raises:
            StorageError: The file cannot be removed.
        """
        self._announce_change()
        storage.remove(self._path(uid))
        storage.remove(self._aside(uid))
        self._by_uid.pop(uid, None)
        self._unreadable.discard(uid)
        self._withheld.discard(uid)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{_SUFFIX}"

    def _aside(self, uid: str) -> Path:
        return self._folder / f"{uid}{_ASIDE}"

    def _announce_change(self) -> None:
        assert self._turn is not None, "records change inside exclusive() only"
        self._turn.announce()
        self._mark = self._turn.mark

    # --- reading the folder ----------------------------------------------------------------------

    def _make_folder(self) -> None:
        # Not all parents: where the kubelet's own folder is missing, it is not mounted.
        try:
            self._folder.parent.mkdir(mode=0o750, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {self._folder}: {error.strerror}") from error

    def _load(self, turn: Turn) -> None:
        self._by_uid.clear()
        self._unreadable.clear()
        try:
            for path in sorted(self._folder.iterdir()):  # a record before what is aside of it
                self._load_file(path)
        except OSError as error:
            raise StorageError(f"cannot read {self._folder}: {error.strerror}") from error
        self._withheld &= self._unreadable
        self._mark = turn.mark

    def _load_file(self, path: Path) -> None:
        if path.name.startswith("."):
            path.unlink()  # unfinished: its writer was killed
        elif path.name.endswith(_SUFFIX):
            self._load_record(path, path.name.removesuffix(_SUFFIX))
        elif path.name.endswith(_ASIDE):
            self._look_aside(path, path.name.removesuffix(_ASIDE))

    def _load_record(self, path: Path, uid: str) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            self._withhold(path, uid, error)
            return
        self._withheld.discard(uid)
        try:
            self._accept(ClaimRecord.parse(content, uid=uid), path)
        except RecordCorrupt as error:
            self._set_aside(path, uid, error)

    def _accept(self, record: ClaimRecord, path: Path) -> None:
        if self._boot_id and record.boot_id not in {"", self._boot_id}:
            path.unlink()
            log.info(
                "claim record of an earlier boot forgotten",
                extra={"claim": str(record), "uid": record.uid, "devices": record.device_names},
            )
        else:
            self._by_uid[record.uid] = record

    def _look_aside(self, path: Path, uid: str) -> None:
        """Take a record back that can be read by now, unless its claim was prepared again."""
        if uid in self._by_uid:
            return
        try:
            record = ClaimRecord.parse(path.read_bytes(), uid=uid)
        except (OSError, RecordCorrupt):
            self._unreadable.add(uid)  # which was said when it was set aside
            return
        self._accept(record, path.replace(self._path(uid)))
        log.warning("claim record can be read again", extra={"claim": str(record), "uid": uid})

    def _set_aside(self, path: Path, uid: str, error: RecordCorrupt) -> None:
        aside = path.replace(self._aside(uid))
        self._unreadable.add(uid)
        log.error(
            "claim record cannot be read and was set aside; only its CDI file guards its NPUs now",
            extra={"path": str(aside), "problem": str(error)},
        )

    def _withhold(self, path: Path, uid: str, error: OSError) -> None:
        """Leave a record that the disk does not give in its place, and ask again next time."""
        self._unreadable.add(uid)
        if uid not in self._withheld:
            self._withheld.add(uid)
            log.error(
                "claim record cannot be read; only its CDI file guards its NPUs now",
                extra={"path": str(path), "problem": error.strerror},
            )


def _read_boot_id(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
