"""One call to the worker: what to run, how far it is, and its result."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import trio

from trio_npu_dra.ascend.dcmi._codes import NOT_READY
from trio_npu_dra.ascend.dcmi.errors import NotReady


@dataclass(frozen=True, slots=True)
class HungCall:
    """A call that passed its deadline and has not returned.

    Attributes:
        function: The C function, or the Python function if no C function was called yet.
        device: The device that hangs with it; None is the Ascend driver as a whole.
        since: When it was made, in seconds since 1970.
    """

    function: str
    device: Hashable
    since: float

    def __str__(self) -> str:
        return call_text(self.function, self.device)


def call_text(function: str, device: Hashable) -> str:
    """A call, for people."""
    return f"{function} of {_device_text(device)}"


def _device_text(device: Hashable) -> str:
    if device is None:
        return "the Ascend driver"
    return " ".join(map(str, device)) if isinstance(device, tuple) else str(device)


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """One call and its result.

    Attributes:
        calls: How many C functions it has called, and the last one's name.
        seen: Their number at the last look, and since when it was in the last one, on trio's clock.
        is_logged: Whether the log says that it is slow.
        is_outdated: Whether a call that had to be alone has run since it hung.
    """

    function: Callable[[], Any]
    name: str
    device: Hashable
    deadline_seconds: float
    alone: bool
    beside: Callable[[Hashable], bool]
    is_urgent: Callable[[], bool]
    on_late: Callable[[Any], object] | None
    calls: tuple[int, str] = (0, "")
    seen: tuple[int, float] = (0, 0.0)
    began: float = 0.0
    is_logged: bool = False
    is_outdated: bool = False
    abandoned: bool = False
    result: Any = None
    error: BaseException | None = None
    done: trio.Event = field(default_factory=trio.Event)

    def fail(self, error: BaseException) -> None:
        """Give the caller an error."""
        self.error = error
        self.done.set()

    def begin(self, function: str) -> None:
        """Note the C function that is called next; on the job's thread.

        Raises:
            NotReady: It must not be called any more.
        """
        self.calls = self.calls[0] + 1, function
        if self.is_outdated:
            raise NotReady(NOT_READY, function, "the cards were listed meanwhile")

    def outdate(self, hung_seconds: float) -> bool:
        """If it hangs in a C function, have it call no other one; return whether it does.

        Its thread notes a function before it checks whether it may call it; here the order is
        reversed, so one of the two sees the other.
        """
        was_outdated, self.is_outdated = self.is_outdated, True
        self.is_outdated = was_outdated or self.seconds_in_function() >= hung_seconds
        return self.is_outdated

    @property
    def where(self) -> str:
        """The C function that it is in, or was in last."""
        return self.calls[1] or self.name

    def seconds_in_function(self) -> float:
        """How long it has been in that function, by the looks so far."""
        now, number = trio.current_time(), self.calls[0]
        known, since = self.seen
        if number > max(known, 1):
            since = now
        self.seen = number, since
        return now - since

    @property
    def log_fields(self) -> dict[str, Any]:
        """Its fields in a log line."""
        return {
            "function": self.where,
            "device": _device_text(self.device),
            "deadline_s": self.deadline_seconds,
        }
