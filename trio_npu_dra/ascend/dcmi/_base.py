"""What all calls of `Dcmi` are made of: the library and the generation that serves the chips."""

from __future__ import annotations

import ctypes
from typing import Any

from trio_npu_dra.ascend.dcmi._answers import out_int, out_struct
from trio_npu_dra.ascend.dcmi._codes import NOT_SUPPORT
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.errors import NotSupported
from trio_npu_dra.ascend.dcmi.generation import Functions, Generation
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.dcmi.v1 import V1


class Calls:
    """The parts of calls.

    Args:
        library: The loaded library.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._generation: Generation = V1

    @property
    def _functions(self) -> Functions:
        return self._generation.functions

    def _struct(self, function: str, struct: type[Any], chip: ChipRef, *arguments: int) -> Any:
        return out_struct(self._library, function, struct, *chip.ids, *arguments)

    def _either(
        self, now: tuple[str, type[Any]], before: tuple[str | None, type[Any]], chip: ChipRef
    ) -> Any:
        """The struct of a call, or of the one that older libraries have in its place."""
        try:
            return self._struct(*now, chip)
        except NotSupported:
            function, struct = before
            if function is None:
                raise
            return self._struct(function, struct, chip)

    def _int(self, function: str, chip: ChipRef) -> int:
        return out_int(self._library, function, *chip.ids)

    def _device_info(
        self, chip: ChipRef, command: tuple[int, int], info: ctypes.Structure, size: int
    ) -> None:
        """The call that fills many structs, by main and sub command."""
        out = (ctypes.byref(info), ctypes.byref(ctypes.c_uint(size)))
        self._library.call(self._functions.device_info, *chip.ids, *command, *out)

    def _offered(self, function: str | None, what: str) -> str:
        """The function's name.

        Raises:
            NotSupported: The generation has no such function.
        """
        if function is None:
            raise NotSupported(NOT_SUPPORT, what, "no library of this generation offers it")
        return function
