"""The file that carries the history of faults over a restart; only the node's owner writes it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from trio_npu_dra.ascend.code_memory import CodeMemory, Seconds
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.boot import Boot
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

_FILE_NAME: Final = "faults.json"
_SIZE_LIMIT: Final = 4 << 20  # bytes; 64 chips with 128 codes each, DCMI's most, take some 3 MB


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    version: int = 1
    chips: dict[str, Any]
    places: dict[str, str] = {}
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
    """

    chips: Mapping[str, Mapping[int, CodeMemory]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


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

    def load(self) -> FaultHistory:
        """Read it; a file that cannot be read is an empty one, because NPUs must be served."""
        try:
            return self._read() or FaultHistory()
        except (StorageError, ValidationError) as error:
            log.error(
                "cannot read the history of faults: separated NPUs are back in service",
                extra={"file": str(self._path), "error": _error_text(error)},
            )
            return FaultHistory()

    def write(self, history: FaultHistory) -> None:
        """Write it; blocks until it is on the disk.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        storage.remove_unfinished(self._path.parent, f"{_FILE_NAME}.")
        storage.write_atomic(self._path, self._encoded(history))

    def _read(self) -> FaultHistory | None:
        """The history by our clock; None if there is no file.

        Raises:
            StorageError: The disk fails, or something foreign is in the file's place.
            ValidationError: It is no such file; a chip that makes no sense costs itself alone.
        """
        data = storage.read_bytes(self._path, limit=_SIZE_LIMIT)
        if data is None:
            return None
        file = _Document.model_validate_json(data)
        theirs = Boot(id=file.boot_id, began=file.booted)
        seconds = self._boot.set_since(theirs) if self._boot is not None else 0.0
        chips = {}
        for key, codes in file.chips.items():
            try:
                known = _CODES.validate_python(codes)
            except ValidationError as error:
                log.error(
                    "cannot read the history of faults of a chip: it is back if it was separated",
                    extra={"file": str(self._path), "chip": key, "error": _error_text(error)},
                )
                continue
            chips[key] = {
                int(code, 16): memory.moved(seconds) if seconds else memory
                for code, memory in known.items()
            }
        return FaultHistory(chips=chips, places=file.places)

    def _encoded(self, history: FaultHistory) -> bytes:
        file = _Document(
            chips={
                key: {f"{code:08X}": memory for code, memory in codes.items()}
                for key, codes in history.chips.items()
            },
            places=dict(history.places),
            boot_id=self._boot.id if self._boot is not None else "",
            booted=self._boot.began if self._boot is not None else 0.0,
        )
        return file.model_dump_json(exclude_defaults=True).encode() + b"\n"


def _error_text(error: StorageError | ValidationError) -> str:
    """One line; of what does not parse, the first of perhaps thousands."""
    if isinstance(error, StorageError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join((".".join(map(str, first["loc"])) or "the whole", first["msg"]))
