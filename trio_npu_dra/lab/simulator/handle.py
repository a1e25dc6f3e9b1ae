"""A board's state file and the places of its devices: the base of every control of a board."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator.layout import DEVICE, Value
from trio_npu_dra.lab.simulator.state_file import StateFile, device_positions


class BoardHandle:
    """A handle on one board; devices are named by physical id.

    Args:
        state_file: `SimulatedBoard.state_file`.

    Raises:
        ConfigError: It is not a state file of this version.
    """

    def __init__(self, state_file: Path) -> None:
        self._path = state_file
        self._file = StateFile(state_file)
        with self._file.locked():
            self._positions = device_positions(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the board stays as it is."""
        self._file.close()

    @property
    def devices(self) -> list[int]:
        """The physical ids of all chips of the board, gone or not."""
        return list(self._positions)

    def read(self, device: int, name: str) -> Value:
        """One member of a device's record, by its name in `state.h`."""
        with self._file.locked():
            return self._file.get(DEVICE, self._position(device), name)

    def _position(self, device: int) -> int:
        """The position of a device's record.

        Raises:
            ConfigError: There is no such device.
        """
        try:
            return self._positions[device]
        except KeyError:
            known = ", ".join(map(str, self._positions))
            raise ConfigError(f"no device {device} on this board; it has {known}") from None

    def _put(self, device: int, **values: Value) -> None:
        """Write members of a device's record, as one change."""
        with self._file.locked():
            self._put_locked(device, **values)

    def _put_locked(self, device: int, **values: Value) -> None:
        for name, value in values.items():
            self._file.put(DEVICE, self._position(device), name, value)
