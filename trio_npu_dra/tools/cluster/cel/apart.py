"""Selectors are evaluated in a process of their own, which the kernel ends when it takes too much.

Whoever may create a claim writes its selectors. The API server bounds what they cost the scheduler;
the library here needs minutes, or all memory, for some that it accepts, and cannot be interrupted.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, Final

from trio_npu_dra.kit.api.objects import Device
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide, as_read, matches

SECONDS: Final = 5
"""CPU time for all selectors of one explanation; each takes some 60 µs for each set of facts."""
_MEMORY: Final = 1 << 30


@contextmanager
def apart() -> Iterator[Decide]:
    """What decides whether a selector admits a device, as `matches` does, within the limits.

    Of devices that are alike in all that a selector reads it asks once: a fleet has 40,000. Once a
    limit is reached, it raises `Undecided` whatever else it is asked.
    """
    command = [sys.executable, "-P", "-m", __name__, str(SECONDS)]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        questions, answers = process.stdin, process.stdout
        assert questions
        assert answers
        known: dict[tuple[str, ...], tuple[bool | None, str]] = {}

        def decide(expression: str, driver: str, device: Device) -> bool:
            seen = as_read(expression, device)
            asked = expression, driver, seen.model_dump_json(by_alias=True, exclude_none=True)
            if asked not in known:
                known[asked] = _ask(questions, answers, asked)
            verdict, words = known[asked]
            if verdict is None:
                raise Undecided(words)
            if words:
                raise SelectorFails(words)
            return verdict

        try:
            yield decide
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # of a question that it did not live to read
                questions.close()


def _ask(
    questions: IO[bytes], answers: IO[bytes], asked: tuple[str, ...]
) -> tuple[bool | None, str]:
    with suppress(BrokenPipeError):
        questions.write(json.dumps(asked).encode() + b"\n")
        questions.flush()
    answer = answers.readline()
    if not answer.endswith(b"\n"):
        return None, f"the CEL takes more than {SECONDS} s or {_MEMORY >> 30} GiB to evaluate here"
    verdict, words = json.loads(answer)
    return verdict, words


def _answer(expression: str, driver: str, facts: str) -> tuple[bool | None, str]:
    """The verdict, None for undecided; and why there is none, or why it fails."""
    try:
        return matches(expression, driver, Device.model_validate_json(facts)), ""
    except SelectorFails as error:
        return False, str(error)
    except Undecided as error:
        return None, str(error)


def _serve(seconds: int) -> None:
    """Answer questions until there are no more, or the kernel ends this process."""
    limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: _MEMORY, resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        with suppress(OSError, ValueError):  # the limit is lower already, or this kernel has none
            resource.setrlimit(limit, (most, most))
    for question in sys.stdin.buffer:
        sys.stdout.write(json.dumps(_answer(*json.loads(question))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
