"""The file that carries the history of faults over a restart, shared by two instances.

During a rolling update both write it. Each save reads the file under a lock, and puts only its own
changes into it. The file has the time of a release by hand, so that earlier occurrences stay
released, whichever instance writes next.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    OnErrorOmit,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from trio_npu_dra.ascend.code_memory import CodeMemory, Seconds
from trio_npu_dra.kit.base import file_lock, storage
from trio_npu_dra.kit.base.boot import Boot
from trio_npu_dra.kit.base.errors import ForeignFile, StorageError

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_FILE_NAME: Final = "faults.json"
_LOCK_NAME: Final = "faults.lock"
# 64 chips with 128 codes each, DCMI's most, take some 3 MB, with 80,000 names. A file that is all
# names takes a hundred times its size in memory.
_SIZE_LIMIT: Final = 4 << 20  # bytes
_MOST_NAMES: Final = 1 << 17
_MOST_CHIPS: Final = 1 << 10
_MOST_CODES: Final = 1 << 14
_LOCK_PAUSE: Final = 0.002  # seconds between two tries
_LOCK_PATIENCE: Final = 1.0  # seconds; the other instance needs milliseconds


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    version: int = 1
    chips: dict[str, Any]
    places: dict[str, str] = {}
    released: dict[str, OnErrorOmit[Annotated[Seconds, Field(strict=True)]]] = {}
    boot_id: str = ""
    booted: Seconds = 0.0


_Code = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{1,9}$")]
_CODES: Final = TypeAdapter(dict[_Code, CodeMemory], config=ConfigDict(defer_build=True))


@dataclass(frozen=True, slots=True)
class FaultHistory:
    """The history of the node's faults.

    Attributes:
        chips: By die id, the memory of each code; only of chips that have one.
        places: The last die id in each place, by the chip's name.
        released: When a chip was released by hand last, by die id, in seconds since 1970.
    """

    chips: Mapping[str, Mapping[int, CodeMemory]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    released: Mapping[str, float] = field(default_factory=dict)


class FaultFile:
    """The file in one folder.

    Args:
        folder: Where it is.
        boot: This boot of the node, by the clock of the times that are exchanged; None takes those
            of the file as they are.
    """

    def __init__(self, folder: Path, boot: Boot | None) -> None:
        self._boot = boot
        self._path = folder / _FILE_NAME
        self._lock = folder / _LOCK_NAME

    def load(self) -> FaultHistory:
        """Read it; a file that cannot be read is an empty one, because NPUs must be served."""
        try:
            return self._read(log_unreadable=True) or FaultHistory()
        except (StorageError, ValidationError) as error:
            log.error(
                "cannot read the history of faults: separated NPUs are back in service",
                extra={"file": str(self._path), "error": _error_text(error)},
            )
            return FaultHistory()

    def exchange(self, ours: FaultHistory, base: FaultHistory, *, now: float) -> FaultHistory:
        """Write the changes of this instance since *base*, and take those of the other one.

        Blocks until it is on the disk.

        Args:
            ours: The history as this instance has it.
            base: The same at the last exchange.
            now: In seconds since 1970; a release after that is none.

        Returns:
            The history in the file.

        Raises:
            StorageError: The disk is full, read-only, or fails; or the lock stays taken.
        """
        with file_lock.hold_blocking(
            self._lock, pause_seconds=_LOCK_PAUSE, patience_seconds=_LOCK_PATIENCE
        ):
            try:
                theirs = self._read(log_unreadable=False)
            except (StorageError, ValidationError):
                theirs = None  # `load` has logged it; it gives way
            merged = merge(base, ours, base if theirs is None else theirs, now=now)
            storage.remove_unfinished(self._path.parent, f"{_FILE_NAME}.")
            data = self._encoded(merged)
            self._check_size(data, merged.chips)  # no start could read more
            storage.write_atomic(self._path, data)
            return merged

    def _read(self, *, log_unreadable: bool) -> FaultHistory | None:
        """The history by our clock; None if there is no file.

        Raises:
            StorageError: The disk fails, or something foreign is in the file's place.
            ValidationError: It is no such file; a chip that makes no sense costs itself alone.
        """
        data = storage.read_bytes(self._path, limit=_SIZE_LIMIT)
        if data is None:
            return None
        self._check_size(data, {})  # before parsing makes much of it
        file = _Document.model_validate_json(data)
        self._check_size(data, file.chips)
        theirs = Boot(id=file.boot_id, began=file.booted)
        seconds = self._boot.set_since(theirs) if self._boot is not None else 0.0
        chips = {}
        for key, codes in file.chips.items():
            try:
                known = _CODES.validate_python(codes)
            except ValidationError as error:
                if log_unreadable:
                    log.error(
                        "cannot read the history of faults of a chip: "
                        "it is back if it was separated",
                        extra={"file": str(self._path), "chip": key, "error": _error_text(error)},
                    )
                continue
            chips[key] = {
                int(code, 16): memory.moved(seconds) if seconds else memory
                for code, memory in known.items()
            }
        released = {key: at + seconds for key, at in file.released.items()}
        return FaultHistory(chips=chips, places=file.places, released=released)

    def _check_size(self, data: bytes, chips: Mapping[str, Any]) -> None:
        """Refuse what a start has not the memory for.

        Raises:
            ForeignFile: It is too much.
        """
        codes = sum(len(codes) for codes in chips.values() if isinstance(codes, Mapping))
        for count, most, what in (
            (len(data), _SIZE_LIMIT, "bytes"),
            (data.count(b":"), _MOST_NAMES, "names"),
            (len(chips), _MOST_CHIPS, "chips"),
            (codes, _MOST_CODES, "codes"),
        ):
            if count > most:
                raise ForeignFile(f"{self._path} has {count} {what}, at most {most} are read")

    def _encoded(self, history: FaultHistory) -> bytes:
        file = _Document(
            chips={
                key: {f"{code:08X}": memory for code, memory in codes.items()}
                for key, codes in history.chips.items()
            },
            places=dict(history.places),
            released=dict(history.released),
            boot_id=self._boot.id if self._boot is not None else "",
            booted=self._boot.began if self._boot is not None else 0.0,
        )
        return file.model_dump_json(exclude_defaults=True).encode() + b"\n"


def merge(
    base: FaultHistory, ours: FaultHistory, theirs: FaultHistory, *, now: float
) -> FaultHistory:
    """Merge two histories that both started from *base* (pure).

    Whatever only one of them changed counts; where both changed a code of a chip, which both watch,
    ours does. Occurrences before a release no longer count, in whichever history they are. A
    release in the future was written by a clock that was wrong.
    """
    released = {
        key: at
        for key in ours.released.keys() | theirs.released.keys()
        if (at := max(ours.released.get(key, 0.0), theirs.released.get(key, 0.0))) <= now
    }
    chips = {}
    for key in sorted(ours.chips.keys() | theirs.chips.keys()):
        merged = _merged(*({**known.chips.get(key, {})} for known in (base, ours, theirs)))
        released_at = released.get(key, -math.inf)
        if merged:
            chips[key] = {code: known.released(released_at) for code, known in merged.items()}
    places = _merged({**base.places}, {**ours.places}, {**theirs.places})
    return FaultHistory(
        chips=chips,
        places={name: key for name, key in places.items() if key in chips},
        released=released,
    )


def _merged(base: dict[K, V], ours: dict[K, V], theirs: dict[K, V]) -> dict[K, V]:
    """Their items, except for those that we changed."""
    changed = {key for key in base.keys() | ours.keys() if base.get(key) != ours.get(key)}
    kept = {key: value for key, value in theirs.items() if key not in changed}
    return kept | {key: value for key, value in ours.items() if key in changed}


def _error_text(error: StorageError | ValidationError) -> str:
    """One line; of what does not parse, the first of perhaps thousands."""
    if isinstance(error, StorageError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join((".".join(map(str, first["loc"])) or "the whole", first["msg"]))
