"""The file that carries what is known of faults over a restart, shared by two instances.

During a rolling update both instances watch the same chips and write the same file. Each save takes
over what the other one wrote since, chip by chip: under a lock, what is there is read, and only
what this instance changed itself is put into it. A release by hand is written down with its time,
so that what was counted before it stays released, whichever instance writes next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from trio_npu_dra.ascend.code_memory import CodeMemory, Seconds
from trio_npu_dra.kit.base import file_lock, storage
from trio_npu_dra.kit.base.boot import Boot
from trio_npu_dra.kit.base.errors import ForeignFile, StorageError

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_FILE_NAME: Final = "faults.json"
_LOCK_NAME: Final = "faults.lock"
# 64 chips with 128 codes each, DCMI's most, take some 3 MB, with 80,000 names. What is read takes
# a hundred times as much memory if all of it is names.
_SIZE_LIMIT: Final = 4 << 20  # bytes
_MOST_NAMES: Final = 1 << 17
_MOST_CHIPS: Final = 1 << 10
_MOST_CODES: Final = 1 << 14
_LOCK_PAUSE: Final = 0.002  # seconds between two tries
_LOCK_PATIENCE: Final = 1.0  # seconds; the other instance needs milliseconds


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    chips: dict[str, Any]
    places: dict[str, str] = {}
    released: dict[str, Any] = {}
    boot_id: str = ""
    booted: Seconds = 0.0


_Code = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{1,9}$")]
_CODES: Final = TypeAdapter(dict[_Code, CodeMemory])
_SECONDS: Final = TypeAdapter(Seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the node's faults.

    Attributes:
        chips: By die id, what is to be remembered of each code; only of chips of which something
            is.
        places: Which die id was told in which place last.
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

    def load(self) -> Known:
        """Read it; NPUs must be served without one that cannot be read."""
        try:
            return self._read(is_told=True) or Known()
        except (StorageError, ValidationError) as error:
            log.error(
                "cannot read the history of faults: separated NPUs are back in service",
                extra={"file": str(self._path), "error": _error_text(error)},
            )
            return Known()

    def exchange(self, ours: Known, base: Known, *, now: float) -> Known:
        """Write what this instance changed since *base*, and take what others wrote.

        Blocks until it is on the disk.

        Args:
            ours: What this instance knows.
            base: What it knew at the last exchange.
            now: In seconds since 1970; a release that is still to come is none.

        Returns:
            What the file says now.

        Raises:
            StorageError: The disk is full, read-only, or fails; or somebody keeps the lock.
        """
        with file_lock.hold_blocking(
            self._lock, pause_seconds=_LOCK_PAUSE, patience_seconds=_LOCK_PATIENCE
        ):
            try:
                theirs = self._read(is_told=False)
            except (StorageError, ValidationError):
                theirs = None  # which was said at the start; it gives way
            merged = merge(base, ours, base if theirs is None else theirs, now=now)
            storage.remove_unfinished(self._path.parent, f"{_FILE_NAME}.")
            data = _encoded(merged, self._boot)
            self._check(data, merged.chips)  # what could not be read is not written
            storage.write_atomic(self._path, data)
            return merged

    def _read(self, *, is_told: bool) -> Known | None:
        data = storage.read_bytes(self._path, limit=_SIZE_LIMIT)
        if data is None:
            return None
        self._check(data, {})  # before much is made of it
        file = _File.model_validate_json(data)
        self._check(data, file.chips)
        chips = {}
        for key, codes in file.chips.items():
            try:
                chips[key] = _by_code(_CODES.validate_python(codes))
            except ValidationError as error:
                if is_told:
                    self._log_unreadable(key, error)
        released = {key: at for key, at in file.released.items() if _is_time(at)}
        return self._on_our_clock(
            Known(chips=chips, places=file.places, released=released),
            Boot(id=file.boot_id, began=file.booted),
        )

    def _check(self, data: bytes, chips: Mapping[str, Any]) -> None:
        """See that it is no more than a start has memory for.

        Raises:
            ForeignFile: It is.
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

    def _on_our_clock(self, known: Known, boot: Boot) -> Known:
        """What was written when the clock said that the node had booted then, by our clock."""
        seconds = self._boot.set_since(boot) if self._boot is not None else 0.0
        return _moved(known, seconds) if seconds else known

    def _log_unreadable(self, key: str, error: ValidationError) -> None:
        log.error(
            "cannot read the history of faults of a chip: it is back if it was separated",
            extra={"file": str(self._path), "chip": key, "error": _error_text(error)},
        )


def merge(base: Known, ours: Known, theirs: Known, *, now: float) -> Known:
    """What two know that both started from *base* (pure).

    What one of them changed counts; where both changed a code of a chip, which both watch, ours
    does. What came before a release does not count any more, whoever knows of it. One in the future
    was written by a clock that was wrong.
    """
    released = {
        key: max(ours.released.get(key, 0.0), theirs.released.get(key, 0.0))
        for key in ours.released.keys() | theirs.released.keys()
    }
    released = {key: at for key, at in released.items() if at <= now}
    keys = sorted(ours.chips.keys() | theirs.chips.keys())
    chips = {
        key: _since(
            released.get(key),
            _merged(
                *({**known.chips.get(key, {})} for known in (base, ours, theirs)),
            ),
        )
        for key in keys
    }
    places = _merged({**base.places}, {**ours.places}, {**theirs.places})
    kept = {key: codes for key, codes in chips.items() if codes}
    return Known(
        chips=kept,
        places={name: key for name, key in places.items() if key in kept},
        released=released,
    )


def _merged(base: dict[K, V], ours: dict[K, V], theirs: dict[K, V]) -> dict[K, V]:
    """Their items, but for those that we changed."""
    changed = {key for key in base.keys() | ours.keys() if base.get(key) != ours.get(key)}
    kept = {key: value for key, value in theirs.items() if key not in changed}
    return kept | {key: value for key, value in ours.items() if key in changed}


def _since(released: float | None, codes: Mapping[int, CodeMemory]) -> dict[int, CodeMemory]:
    """What counts of a chip's codes after a release."""
    if released is None:
        return dict(codes)
    return {code: _after(released, known) for code, known in codes.items()}


def _after(released: float, known: CodeMemory) -> CodeMemory:
    is_over = known.separated is not None and known.separated <= released
    if not is_over:
        return known
    occurred = tuple(at for at in known.occurred if at > released)
    return known.model_copy(update={"separated": None, "occurred": occurred})


def _moved(known: Known, seconds: float) -> Known:
    chips = {
        key: {code: memory.moved(seconds) for code, memory in codes.items()}
        for key, codes in known.chips.items()
    }
    released = {key: at + seconds for key, at in known.released.items()}
    return replace(known, chips=chips, released=released)


def _encoded(known: Known, boot: Boot | None) -> bytes:
    chips = {key: _in_hex(codes) for key, codes in known.chips.items()}
    file = _File(
        chips=chips,
        places=dict(known.places),
        released=dict(known.released),
        boot_id=boot.id if boot is not None else "",
        booted=boot.began if boot is not None else 0.0,
    )
    return file.model_dump_json(exclude_defaults=True).encode() + b"\n"


def _in_hex(codes: Mapping[int, CodeMemory]) -> dict[str, CodeMemory]:
    return {f"{code:08X}": known for code, known in codes.items()}


def _by_code(codes: Mapping[str, CodeMemory]) -> dict[int, CodeMemory]:
    return {int(code, 16): known for code, known in codes.items()}


def _is_time(value: object) -> bool:
    try:
        _SECONDS.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _error_text(error: StorageError | ValidationError) -> str:
    """One line; of what does not parse, the first of perhaps thousands."""
    if isinstance(error, StorageError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join((".".join(map(str, first["loc"])) or "the whole", first["msg"]))
