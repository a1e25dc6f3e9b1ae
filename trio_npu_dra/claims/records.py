"""Which claim holds which NPU, in one file a claim: what survives a restart of this driver.

The kubelet does not prepare a running pod's claims again when only this driver restarts, so nothing
that may still be true is thrown away:

- A record of a newer version is read as far as it is known, and written back whole.
- A record that cannot be read costs its own claim only. A broken one is set aside under a name
  that each start looks at again: a newer version that comes back, or a person, may read it. So is
  what is no file of ours under a record's name (`storage`). One that the disk does not give stays
  where it is. In any case its claim is *unreadable*: it keeps its CDI file, and that file still
  guards its NPUs (`claims.prepare`).
- Records that somebody takes away, the whole folder or some of its files, are written again from
  memory, which is the truth as long as this process lives.

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
import os
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from trio_npu_dra import storage
from trio_npu_dra.claims.record import ClaimRecord, RecordedDevice
from trio_npu_dra.holds.lock import NodeLock, Turn
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import ForeignFile, RecordCorrupt, StorageError
from trio_npu_dra.observable import Observable

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Where Linux says which boot this is, in containers too."""

_FOLDER_MODE = 0o700
_SUFFIX = ".json"
_ASIDE = ".json.aside"


class Records:
    """All claim records of the node, held in memory; files change with them, inside `exclusive`.

    Args:
        state_folder: Holds `claims/<uid>.json` and `serialize.lock`; made when missing.
        boot_id_file: Tells the boot of the node; without it no record is of an earlier one.

    Attributes:
        problem: Why claims cannot be served now, as the last who tried found; empty when they can.
    """

    def __init__(self, state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> None:
        self.problem = Observable("")
        self._folder = state_folder / "claims"
        self._lock = NodeLock(state_folder / "serialize.lock")
        self._boot_id = _read_boot_id(boot_id_file)
        self._turn: Turn | None = None
        self._mark: bytes | None = None
        self._by_uid: dict[str, ClaimRecord] = {}
        self._unreadable: set[str] = set()
        self._withheld: set[str] = set()
        self._named: set[str] = set()

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
            StorageError: The lock or the folder cannot be used. What was put or removed inside
                then holds already.
        """
        async with AsyncExitStack() as section:
            try:
                storage.make_folder(self._folder.parent, mode=storage.PLUGIN_FOLDER_MODE)
                self._turn = await section.enter_async_context(self._lock.hold())
                section.callback(self._leave)
                self._catch_up(self._turn)
            except StorageError as error:
                self.problem.set(str(error))
                raise
            self.problem.set("")
            yield

    def _leave(self) -> None:
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
        self._write(record.model_copy(update={"boot_id": self._boot_id}))

    def _write(self, record: ClaimRecord) -> None:
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

    def write_missing(self) -> None:
        """Write again what somebody took away; inside `exclusive`.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        if self._restore():
            self._announce_change()

    def _restore(self) -> bool:
        """The same, without telling other instances; whether anything was missing.

        Of a claim whose record could not be read an empty file is left, so that the next start
        knows of it too.
        """
        with storage.translated(f"read {self._folder}"), os.scandir(self._folder) as entries:
            is_file = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        lost = [uid for uid in self._by_uid if not is_file.get(f"{uid}{_SUFFIX}")]
        unknown = [
            uid
            for uid in self._unreadable
            if is_file.keys().isdisjoint({f"{uid}{_SUFFIX}", f"{uid}{_ASIDE}"})
        ]
        for uid in lost:
            self._write(self._by_uid[uid])
        for uid in unknown:
            storage.write_atomic(self._aside(uid), b"")
            self._withheld.discard(uid)
        if lost or unknown:
            log.warning("claim records were missing and are rewritten", extra={"uids": lost})
        return bool(lost or unknown)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{_SUFFIX}"

    def _aside(self, uid: str) -> Path:
        return self._folder / f"{uid}{_ASIDE}"

    def _announce_change(self) -> None:
        assert self._turn is not None, "records change inside exclusive() only"
        self._turn.announce()
        self._mark = self._turn.mark

    # --- reading the folder ----------------------------------------------------------------------

    def _catch_up(self, turn: Turn) -> None:
        """Make memory what the folder says, or the folder what memory says if it was taken away."""
        was_missing = storage.make_folder(self._folder, mode=_FOLDER_MODE)
        if was_missing and self._mark is not None:
            # Nobody is told. Whoever wrote last still knows all, and adds what we do not know; we
            # read it then, because our mark is not his.
            self._restore()
        elif turn.mark != self._mark or self._withheld:
            self._load(turn)

    def _load(self, turn: Turn) -> None:
        with storage.translated(f"read {self._folder}"):
            paths = sorted(self._folder.iterdir())  # a record before what is aside of it
        self._by_uid.clear()
        self._unreadable.clear()
        for path in paths:
            self._load_file(path)
        self._withheld &= self._unreadable
        self._mark = turn.mark

    def _load_file(self, path: Path) -> None:
        name = path.name
        if storage.is_unfinished(name):
            storage.remove_if_abandoned(path)
        elif name.startswith(".") or not name.endswith((_SUFFIX, _ASIDE)):
            if not storage.is_set_aside(name) and self._is_news(path):
                log.warning("something foreign among the claim records", extra={"path": str(path)})
        elif name.endswith(_ASIDE):
            self._look_aside(path, name.removesuffix(_ASIDE))
        else:
            self._load_record(path, name.removesuffix(_SUFFIX))

    def _load_record(self, path: Path, uid: str) -> None:
        try:
            content = storage.read_bytes(path) or b""
            self._accept(ClaimRecord.parse(content, uid=uid), path)
        except (ForeignFile, RecordCorrupt) as error:
            self._set_aside(path, uid, error)
        except StorageError as error:
            self._withhold(path, uid, error)

    def _accept(self, record: ClaimRecord, path: Path) -> None:
        self._withheld.discard(record.uid)
        self._named.discard(path.name)
        if not self._boot_id or record.boot_id in {"", self._boot_id}:
            self._by_uid[record.uid] = record
            return
        try:
            storage.remove(path)
        except StorageError as error:
            log.warning("claim record of an earlier boot stays: %s", error)
        log.info(
            "claim record of an earlier boot forgotten",
            extra={"claim": str(record), "uid": record.uid, "devices": record.device_names},
        )

    def _look_aside(self, path: Path, uid: str) -> None:
        """Take a record back that can be read by now, unless its claim was prepared again."""
        if uid in self._by_uid:
            return
        try:
            record = ClaimRecord.parse(storage.read_bytes(path) or b"", uid=uid)
            storage.rename(path, self._path(uid))
        except StorageError:
            self._unreadable.add(uid)  # which was said when it was set aside
            return
        self._accept(record, self._path(uid))
        log.warning("claim record can be read again", extra={"claim": str(record), "uid": uid})

    def _set_aside(self, path: Path, uid: str, error: StorageError) -> None:
        self._unreadable.add(uid)
        self._withheld.discard(uid)
        aside = self._aside(uid)
        try:
            if isinstance(error, ForeignFile) and os.path.lexists(aside):
                aside = storage.set_aside(path)  # what is aside already may be the claim's record
            else:
                storage.rename(path, aside)
        except StorageError as refusal:
            self._complain(path, f"{error}; {refusal}")
        else:
            log.error(
                "claim record cannot be read and was set aside; "
                "only its CDI file guards its NPUs now",
                extra={"path": str(aside), "problem": str(error)},
            )

    def _withhold(self, path: Path, uid: str, error: StorageError) -> None:
        """Leave a record that the disk does not give in its place, and ask again next time."""
        self._unreadable.add(uid)
        self._withheld.add(uid)
        self._complain(path, str(error))

    def _complain(self, path: Path, problem: str) -> None:
        if self._is_news(path):
            log.error(
                "claim record cannot be read; only its CDI file guards its NPUs now",
                extra={"path": str(path), "problem": problem},
            )

    def _is_news(self, path: Path) -> bool:
        """Whether nothing was said of *path* yet; true once."""
        is_news = path.name not in self._named
        self._named.add(path.name)
        return is_news


def _read_boot_id(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
