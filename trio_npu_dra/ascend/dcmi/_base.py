"""What all calls of `Dcmi` are made of: the library and the generation that serves the chips."""

from __future__ import annotations

import ctypes
from collections.abc import Container
from typing import Any, Final, TypeVar

from trio_npu_dra.ascend.dcmi._answers import spacious, text
from trio_npu_dra.ascend.dcmi._codes import NOT_SUPPORT
from trio_npu_dra.ascend.dcmi._functions import DEVICE_INFO, FIRST, Function
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import NONE, ChipRef

_UNWRITTEN: Final = 0x7FFF_FFFF  # no value of a sensor, no kind, no state

S = TypeVar("S", bound=ctypes.Structure)


class Calls:
    """Calls by the kind of their last argument, which the library fills."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._generation = FIRST

    def _name(self, function: Function) -> str:
        """The function's name in the generation that serves the chips.

        Raises:
            NotSupported: The generation has no such function.
        """
        name = function.names[self._generation]
        if name is None:
            raise NotSupported(
                NOT_SUPPORT, function.what, "no library of this generation offers it"
            )
        return name

    def _call(self, function: Function, *arguments: Any) -> None:
        """Call a function; a chip stands for the numbers that name it."""
        name, argtypes = self._name(function), function.argtypes[self._generation]
        plain = [
            number
            for one in arguments
            for number in (one.ids if isinstance(one, ChipRef) else (one,))
        ]
        self._library.call(name, argtypes, *plain)

    def _struct(self, function: Function, struct: type[S], *arguments: ChipRef | int) -> S:
        out = spacious(struct)
        self._call(function, *arguments, ctypes.byref(out))
        return out

    def _either(
        self, now: tuple[Function, type[Any]], before: tuple[Function, type[Any]], chip: ChipRef
    ) -> Any:
        """The struct of a call, or of the call that older libraries have instead."""
        try:
            return self._struct(*now, chip)
        except NotSupported:
            if before[0].names[self._generation] is None:
                raise
            return self._struct(*before, chip)

    def _int(self, function: Function, *arguments: ChipRef | int) -> int:
        out = ctypes.c_int(_UNWRITTEN)
        self._call(function, *arguments, ctypes.byref(out))
        return out.value

    def _one_of(self, numbers: Container[int], function: Function, *args: ChipRef | int) -> int:
        """One of the numbers that the vendor documents.

        Raises:
            DcmiError: It is another one.
        """
        number = self._int(function, *args)
        if number not in numbers:
            raise DcmiError(0, self._name(function), f"{number}, which is no documented answer")
        return number

    def _uint(self, function: Function, *arguments: ChipRef | int) -> int:
        out = ctypes.c_uint(NONE)
        self._call(function, *arguments, ctypes.byref(out))
        return out.value

    def _text(self, function: Function, *arguments: ChipRef | int, size: int = 256) -> str:
        buffer = ctypes.create_string_buffer(size)
        self._call(function, *arguments, buffer, size)
        return text(buffer.value)

    def _device_info(self, chip: ChipRef, command: tuple[int, int], info: S) -> S:
        """The call that fills many structs, by main and sub command."""
        out = (ctypes.byref(info), ctypes.byref(ctypes.c_uint(ctypes.sizeof(info))))
        self._call(DEVICE_INFO, chip, *command, *out)
        return info
