"""The faults of all chips of the node, and the file that carries them over a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import trio
from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from trio_npu_dra import storage
from trio_npu_dra.errors import StorageError
from trio_npu_dra.npu.chip_faults import ChipFaults, CodeMemory
from trio_npu_dra.npu.faults import packaged_table
from trio_npu_dra.npu.model import Chip

log = logging.getLogger(__name__)

_FILE_NAME: Final = "faults.json"
_SIZE_LIMIT: Final = 8 << 20  # bytes; 64 chips with 128 codes each, DCMI's most, take some 3 MB

SAVE_SECONDS: Final = 1.0
"""At least between two writes: a storm of faults must not become one of writes."""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    chips: dict[str, Any]
    places: dict[str, str] = {}


_Code = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{1,8}$")]
_CODES: Final = TypeAdapter(dict[_Code, CodeMemory])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the file is to say: memory by die id, and which die id was told in which place last."""

    chips: Mapping[str, Mapping[int, CodeMemory]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


class NodeFaults:
    """The faults of the node's chips, by chip: a card that was replaced starts anew.

    Chips are known by die id; one without it is taken for the last chip seen under the same name.

    Args:
        folder: Where the file is; None keeps nothing over a restart.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.now = clock
        self._path = folder / _FILE_NAME if folder is not None else None
        self._table = packaged_table()
        self._chips: dict[str, ChipFaults] = {}
        self._places: dict[str, str] = {}
        self._saved = _Known()
        self._released = trio.Event()
        self._failure = ""
        if self._path is not None:
            self._load(self._path)

    def of(self, chip: Chip) -> ChipFaults:
        """The faults of one chip."""
        return self._chips.setdefault(self._key(chip), ChipFaults(self._table))

    def release(self, chip: Chip) -> bool:
        """Take back what frequency rules did to a chip; the watcher tells everybody.

        Returns:
            Whether there was something to take back.
        """
        if not self.of(chip).release(self.now()):
            return False
        self._released.set()
        return True

    async def wait_released(self) -> None:
        """Return when a chip was released."""
        await self._released.wait()
        self._released = trio.Event()

    @property
    def is_saved(self) -> bool:
        """Whether the file says what is known."""
        return self._path is None or self._known() == self._saved

    def save(self) -> None:
        """Write the file if it says something else; a disk that fails is tried again later."""
        if self._path is not None and not self.is_saved:
            known = self._known()
            self._note(known, _written(self._path, known))

    async def save_apart(self) -> None:
        """The same from a thread: a slow disk keeps nobody from hearing of the fault."""
        if self._path is not None and not self.is_saved:
            known = self._known()
            self._note(known, await trio.to_thread.run_sync(_written, self._path, known))

    def _note(self, known: _Known, failure: str) -> None:
        if not failure:
            self._saved = known
        elif failure != self._failure:
            log.error("faults are not remembered", extra={"error": failure})
        self._failure = failure

    def _key(self, chip: Chip) -> str:
        uuid = chip.uuid
        if uuid is None:
            return self._places.get(chip.name, chip.name)
        if self._places.get(chip.name) != uuid:
            self._places = {name: key for name, key in self._places.items() if key != uuid}
            self._places[chip.name] = uuid
            if uuid not in self._chips and chip.name in self._chips:
                self._chips[uuid] = self._chips.pop(chip.name)  # it tells only now who it is
        return uuid

    def _known(self) -> _Known:
        chips = {key: dict(chip.memory) for key, chip in self._chips.items() if chip.memory}
        places = {name: key for name, key in self._places.items() if key in chips}
        return _Known(chips=chips, places=places)

    def _load(self, path: Path) -> None:
        """Read the file; NPUs must be served without one that cannot be read."""
        try:
            data = storage.read_bytes(path, limit=_SIZE_LIMIT)
            if data is None:
                return
            file = _File.model_validate_json(data)
        except (StorageError, ValidationError) as error:
            log.error(
                "what was known of faults cannot be read: separated NPUs are so no longer",
                extra={"file": str(path), "error": _words(error)},
            )
            return
        chips = {}
        for key, codes in file.chips.items():
            try:
                chips[key] = _by_code(_CODES.validate_python(codes))
            except ValidationError as error:
                log.error(
                    "what was known of a chip's faults cannot be read: "
                    "it is separated no longer if it was",
                    extra={"file": str(path), "chip": key, "error": _words(error)},
                )
        self._saved = _Known(chips=chips, places=file.places)
        self._chips = {key: ChipFaults(self._table, codes) for key, codes in chips.items()}
        self._places = dict(file.places)


def _words(error: StorageError | ValidationError) -> str:
    """One line; of what does not parse, the first of perhaps thousands."""
    if isinstance(error, StorageError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join((".".join(map(str, first["loc"])) or "the whole", first["msg"]))


def _written(path: Path, known: _Known) -> str:
    """Write the file; why that failed, empty when it did not."""
    chips = {key: _in_hex(codes) for key, codes in known.chips.items()}
    file = _File(chips=chips, places=dict(known.places))
    data = file.model_dump_json(exclude_defaults=True).encode() + b"\n"
    try:
        storage.remove_unfinished(path.parent, f"{_FILE_NAME}.")
        storage.write_atomic(path, data)
    except StorageError as error:
        return str(error)
    return ""


def _in_hex(codes: Mapping[int, CodeMemory]) -> dict[str, CodeMemory]:
    return {f"{code:08X}": known for code, known in codes.items()}


def _by_code(codes: Mapping[str, CodeMemory]) -> dict[int, CodeMemory]:
    return {int(code, 16): known for code, known in codes.items()}
