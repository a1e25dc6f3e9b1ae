"""Counts what a peer sends, frame by frame, before h2 handles it.

h2 waits for a frame of up to 16 MiB before it refuses it, keeps a megabyte of headers that do not
end, and works through every PING and every reset stream that was read, however many there are.
So this module first reads the head of each frame, nine bytes (RFC 9113, 4.1).
"""

from __future__ import annotations

from typing import Final

import trio

from trio_npu_dra.kit.grpc.limits import Limits

RESET_COST: Final = 10
"""What a reset costs, in frames, because it begins and ends a call."""

FRAME_BYTES: Final = 1 << 14
"""Limit of a frame's payload: HTTP/2's default, which we do not change."""

SETTINGS_BYTES: Final = 32 * 6
"""Limit of a SETTINGS frame's payload; there are seven settings, of six bytes each."""

_PREFACE_BYTES = 24
_HEAD_BYTES = 9
_HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _CONTINUATION = 1, 3, 4, 5, 9


class BudgetExceeded(Exception):
    """A peer sends more than any client would."""


class FrameBudget:
    """What one connection may still send.

    Args:
        limits: Those of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = float(limits.frames)
        self._counted_at = trio.current_time()
        self._skip = _PREFACE_BYTES
        self._head = b""
        self._header_bytes = 0

    def read(self, data: bytes, frames: int) -> int:
        """Count the next *frames* frames of what the peer sends.

        Args:
            data: What has come since the last call, and what that call did not count.
            frames: How many may begin.

        Returns:
            How many bytes of *data* were counted: all, unless more frames begin in it.

        Raises:
            BudgetExceeded: The connection must be closed.
        """
        now = trio.current_time()
        self._give((now - self._counted_at) * self._limits.frames_per_second)
        self._counted_at = now
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
            elif not frames:
                break
            else:
                step = min(_HEAD_BYTES - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == _HEAD_BYTES:
                    self._begin(int.from_bytes(self._head[:3]), self._head[3])
                    self._head = b""
                    frames -= 1
            at += step
        return at

    def replied(self) -> None:
        """Give back what a call costs, so that a peer whose calls are answered may go on."""
        self._give(self._limits.frames_per_reply)

    def _give(self, frames: float) -> None:
        self._left = min(self._left + frames, self._limits.frames)

    def _begin(self, size: int, kind: int) -> None:
        if size > (SETTINGS_BYTES if kind == _SETTINGS else FRAME_BYTES):
            raise BudgetExceeded(f"a frame of {size} bytes")
        if kind in (_HEADERS, _PUSH_PROMISE, _CONTINUATION):
            self._header_bytes = size + (self._header_bytes if kind == _CONTINUATION else 0)
            if self._header_bytes > self._limits.header_bytes:
                raise BudgetExceeded(f"headers of more than {self._limits.header_bytes} bytes")
        self._left -= RESET_COST if kind == _RST_STREAM else 1
        if self._left < 0:
            raise BudgetExceeded("too many frames or resets for the calls that were answered")
        self._skip = size
