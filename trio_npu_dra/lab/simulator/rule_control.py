"""Lets calls into the simulated library fail, wait or hang, or succeed on a booting chip."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator.handle import BoardHandle
from trio_npu_dra.lab.simulator.layout import BOARD, MAX_RULES, RULE, Value
from trio_npu_dra.lab.simulator.state_file import element

ANY_FUNCTION = "*"
"""Stands for every function in a rule."""


@cache
def simulated_functions() -> frozenset[str]:
    """The functions of the simulated library, of both generations, read from its source."""
    found: set[str] = set()
    for source in Path(__file__).parent.glob("*.c"):
        found.update(
            re.findall(r"^EXPORT int (dcmi(?:v2)?_\w+)\(", source.read_text(), re.MULTILINE)
        )
    return frozenset(found)


def check_function(function: str) -> None:
    """Accept the functions of the library, and `ANY_FUNCTION`.

    Raises:
        ConfigError: The library has no such function.
    """
    if function != ANY_FUNCTION and function not in simulated_functions():
        raise ConfigError(f"the simulated library has no function {function!r}")


class RuleControl(BoardHandle):
    """Rules for calls: of one function or all, on one device or any."""

    def set_return_code(self, function: str, code: int, device: int | None = None) -> None:
        """Let calls of a function return *code*, on one device or (None) everywhere.

        Raises:
            ConfigError: The library has no such function.
        """
        self._rule(function, device, code=code)

    def set_delay(self, function: str, milliseconds: int, device: int | None = None) -> None:
        """Let calls of a function take longer."""
        self._rule(function, device, delay_ms=milliseconds)

    def hang(self, function: str = ANY_FUNCTION, device: int | None = None) -> None:
        """Let calls of a function hang until `release`."""
        self._rule(function, device, hang=1)

    def release(self, function: str = ANY_FUNCTION, device: int | None = None) -> None:
        """End what `set_return_code`, `set_delay`, `hang` or a presence set for the same calls."""
        with self._file.locked():
            place = self._find_rule(function, -1 if device is None else device)
            self._file.put(RULE, place, "active", 0)

    def _rule(self, function: str, device: int | None, **values: int) -> None:
        with self._file.locked():
            self._rule_locked(function, device, **values)

    def _rule_locked(self, function: str, device: int | None, **values: int) -> None:
        check_function(function)
        if device is not None:
            self._position(device)
        physical_id = -1 if device is None else device
        place = self._find_rule(function, physical_id)
        rule: dict[str, Value] = {"function": function, "physical_id": physical_id, "active": 1}
        self._file.write(place, RULE.pack(rule | values))

    def _end_rules_of_presence(self, device: int) -> None:
        """End the rules that hold only while the device is as it is; with the file locked."""
        for place in (element(BOARD, "rules", index) for index in range(MAX_RULES)):
            is_of_device = self._file.number(RULE, place, "physical_id") == device
            if is_of_device and self._file.number(RULE, place, "until_change") == 1:
                self._file.put(RULE, place, "active", 0)

    def _find_rule(self, function: str, device: int) -> int:
        """The place of the rule for these arguments, or else a free place.

        Raises:
            ConfigError: There is neither.
        """
        free = None
        for place in (element(BOARD, "rules", index) for index in range(MAX_RULES)):
            active = self._file.number(RULE, place, "active") == 1
            named = self._file.get(RULE, place, "function") == function
            if active and named and self._file.number(RULE, place, "physical_id") == device:
                return place
            if free is None and not active:
                free = place
        if free is None:
            raise ConfigError(f"{MAX_RULES} rules for functions are in use; release some")
        return free
