"""Which claim holds which NPU, in one file a claim: what survives a restart of this driver.

The kubelet does not prepare a running pod's claims again when only this driver restarts, so a
record that cannot be read costs its own claim only, and a record of a newer version is read as far
as it is known and written back whole.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trio_npu_dra import storage
from trio_npu_dra.claims.serialize import NodeLock, Turn
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import RecordCorrupt, StorageError
from trio_npu_dra.npu.model import ChipFamily

log = logging.getLogger(__name__)

_SUFFIX = ".json"
_CORRUPT = ".json.corrupt"


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )


class RecordedClaim(_Part):
    """Which claim it is."""

    namespace: str
    name: str
    uid: str


class RecordedDevice(_Part):
    """One device of the claim, with all that its CDI file needs when no chip can be asked.

    Attributes:
        requests: Names of the requests it serves.
        pool: The pool it was allocated from.
        device: Its name in the pool.
        admin_access: Whether the claim only looks on and another one may hold the device.
        family: The chip generation, which decides what a container needs besides.
        device_nodes: Device nodes: the container's path to the host's path.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    family: ChipFamily
    device_nodes: dict[str, str]


class ClaimRecord(_Part):
    """A claim that is prepared on this node.

    Attributes:
        version: The format; a higher one is read too, its fields that we do not know are kept.
        claim: Which claim it is.
        devices: Its devices, none twice.
    """

    version: int = Field(1, ge=1)
    claim: RecordedClaim
    devices: tuple[RecordedDevice, ...]

    @property
    def uid(self) -> str:
        """The claim's UID."""
        return self.claim.uid

    def __str__(self) -> str:
        """The name people know the claim by."""
        return f"{self.claim.namespace}/{self.claim.name}"

    @property
    def device_names(self) -> list[str]:
        """The devices' names, for log lines."""
        return [device.device for device in self.devices]

    def has_devices_of(self, other: ClaimRecord) -> bool:
        """Whether both say the same of their devices, as far as this version knows."""
        return _known(self.devices) == _known(other.devices)

    @classmethod
    def parse(cls, data: bytes, *, uid: str) -> Self:
        """Read the record of the claim *uid*.

        Raises:
            RecordCorrupt: It is no record, or one of another claim.
        """
        try:
            record = cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise RecordCorrupt(f"{field}: {first['msg']}") from None
        if record.uid != uid:
            raise RecordCorrupt(f"claim.uid={record.uid!r} does not fit the file's name")
        return record

    def to_json(self) -> bytes:
        """The file's content, with the fields that we do not know."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


class Records:
    """All claim records of the node, held in memory; files change with them, inside `exclusive`.

    Args:
        state_folder: Holds `claims/<uid>.json` and `serialize.lock`; made when missing.
    """

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder / "claims"
        self._lock = NodeLock(state_folder / "serialize.lock")
        self._turn: Turn | None = None
        self._mark: bytes | None = None
        self._by_uid: dict[str, ClaimRecord] = {}
        self._broken: set[str] = set()
        self._is_synced = True

    @property
    def by_uid(self) -> Mapping[str, ClaimRecord]:
        """Records by claim UID, as of the last critical section."""
        return MappingProxyType(self._by_uid)

    @property
    def broken(self) -> AbstractSet[str]:
        """UIDs of claims whose record was set aside; their pods may still run."""
        return frozenset(self._broken)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """The node's critical section: records are up to date within, durable after it.

        All that was written inside shares one fsync of the folder. There is no checkpoint between
        the start of the body and the end of the section but those of the body.

        Raises:
            StorageError: The lock, a record or the folder cannot be used. What was put or removed
                inside then holds already, and the next section makes it durable.
        """
        if self._mark is None:
            self._make_folder()
        async with self._lock.hold() as turn:
            if turn.mark != self._mark:
                self._load(turn)
            self._turn = turn
            try:
                yield
                self._sync()
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
        storage.write_atomic(
            self._path(record.uid),
            record.to_json(),
            sync_parent=False,
            before_rename=Point.PREPARE_RECORD_WRITTEN,
        )
        reached(Point.PREPARE_RECORD_RENAMED)
        self._by_uid[record.uid] = record

    def remove(self, uid: str) -> None:
        """Remove the record of the claim *uid*, or what was set aside of it.

        Raises:
            StorageError: The file cannot be removed.
        """
        self._announce_change()
        storage.remove(self._path(uid), sync_parent=False)
        storage.remove(self._folder / f"{uid}{_CORRUPT}", sync_parent=False)
        self._by_uid.pop(uid, None)
        self._broken.discard(uid)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{_SUFFIX}"

    def _announce_change(self) -> None:
        assert self._turn is not None, "records change inside exclusive() only"
        self._turn.announce()
        self._mark = self._turn.mark
        self._is_synced = False

    def _sync(self) -> None:
        if not self._is_synced:
            storage.sync_directory(self._folder)
            self._is_synced = True

    # --- reading the folder ----------------------------------------------------------------------

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {self._folder}: {error.strerror}") from error

    def _load(self, turn: Turn) -> None:
        self._by_uid.clear()
        self._broken.clear()
        try:
            for path in sorted(self._folder.iterdir()):
                self._load_file(path)
        except OSError as error:
            raise StorageError(f"cannot read {self._folder}: {error.strerror}") from error
        self._mark = turn.mark

    def _load_file(self, path: Path) -> None:
        if path.name.startswith("."):
            path.unlink()  # unfinished: its writer was killed
        elif path.name.endswith(_CORRUPT):
            self._broken.add(path.name.removesuffix(_CORRUPT))
        elif path.name.endswith(_SUFFIX):
            uid = path.name.removesuffix(_SUFFIX)
            try:
                self._by_uid[uid] = ClaimRecord.parse(path.read_bytes(), uid=uid)
            except RecordCorrupt as error:
                self._set_aside(path, uid, error)

    def _set_aside(self, path: Path, uid: str, error: RecordCorrupt) -> None:
        aside = path.with_name(uid + _CORRUPT)
        path.replace(aside)
        self._broken.add(uid)
        log.error(
            "claim record is broken and was set aside; its NPUs are not guarded any more",
            extra={"path": str(aside), "problem": str(error)},
        )


def _known(devices: Sequence[RecordedDevice]) -> list[dict[str, object]]:
    return [
        {name: getattr(device, name) for name in RecordedDevice.model_fields} for device in devices
    ]
