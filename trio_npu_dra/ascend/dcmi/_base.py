"""What all calls of `Dcmi` are made of: the library and the generation that serves the chips."""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

from trio_npu_dra.ascend.dcmi._answers import NONE, spacious, text
from trio_npu_dra.ascend.dcmi._codes import NOT_SUPPORT
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.errors import NotSupported
from trio_npu_dra.ascend.dcmi.generations import V1, Generation
from trio_npu_dra.ascend.dcmi.types import ChipRef

S = TypeVar("S", bound=ctypes.Structure)


class Calls:
    """Calls by the kind of their last argument, which the library fills."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._generation: Generation = V1

    def _struct(self, function: str, struct: type[S], *arguments: int) -> S:
        out = spacious(struct)
        self._library.call(function, *arguments, ctypes.byref(out))
        return out

    def _either(
        self, now: tuple[str, type[Any]], before: tuple[str | None, type[Any]], chip: ChipRef
    ) -> Any:
        """The struct of a call, or of the call that older libraries have instead."""
        try:
            return self._struct(*now, *chip.ids)
        except NotSupported:
            function, struct = before
            if function is None:
                raise
            return self._struct(function, struct, *chip.ids)

    def _int(self, function: str, *arguments: int) -> int:
        out = ctypes.c_int(-1)
        self._library.call(function, *arguments, ctypes.byref(out))
        return out.value

    def _uint(self, function: str, *arguments: int) -> int:
        out = ctypes.c_uint(NONE)
        self._library.call(function, *arguments, ctypes.byref(out))
        return out.value

    def _text(self, function: str, *arguments: int, size: int = 256) -> str:
        buffer = ctypes.create_string_buffer(size)
        self._library.call(function, *arguments, buffer, size)
        return text(buffer.value)

    def _device_info(self, chip: ChipRef, command: tuple[int, int], info: S) -> S:
        """The call that fills many structs, by main and sub command."""
        out = (ctypes.byref(info), ctypes.byref(ctypes.c_uint(ctypes.sizeof(info))))
        self._library.call(self._generation.device_info, *chip.ids, *command, *out)
        return info

    def _offered(self, function: str | None, what: str) -> str:
        """The function's name.

        Raises:
            NotSupported: The generation has no such function.
        """
        if function is None:
            raise NotSupported(NOT_SUPPORT, what, "no library of this generation offers it")
        return function
