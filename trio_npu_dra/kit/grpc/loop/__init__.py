"""asyncio's own event loop, run by trio in steps, for libraries that know only asyncio.

asyncio takes turns: it runs what is ready and asks its selector for what becomes ready, sleeping
there. Our selector never sleeps. Where asyncio would, the selector ends the step instead, and trio
waits for what asyncio would have waited for: its sockets, its next timer, or new work. Everything
happens on trio's thread, and asyncio is "running" only inside a step.

Calls cross both ways (`Loop.in_trio`, `Loop.in_asyncio`), and so does cancellation. A cancelled
call is over when its other side has ended, never before.

This leans on three facts of asyncio, all public: a loop with nothing to run calls `select()` with
the time that it may sleep, `stop()` ends `run_forever()` after the turn that runs, and
`run_forever()` can be called again.
"""

from __future__ import annotations

from trio_npu_dra.kit.grpc.loop.stepped import Loop, open_loop

__all__ = ["Loop", "open_loop"]
