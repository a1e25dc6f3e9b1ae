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
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches

SECONDS: Final = 5
"""CPU time for all selectors of one explanation; each takes some 60 µs for each device."""
_MEMORY: Final = 1 << 30


@contextmanager
def apart() -> Iterator[Decide]:
    """What decides whether a selector admits a device, as `matches` does, within the limits.

    Once a limit is reached, it raises `Undecided` whatever it is asked.
    """
    command = [sys.executable, "-P", "-m", __name__, str(SECONDS)]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        questions, answers = process.stdin, process.stdout
        assert questions
        assert answers

        def decide(expression: str, driver: str, device: Device) -> bool:
            return _ask(questions, answers, expression, driver, device)

        try:
            yield decide
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # of a question that it did not live to read
                questions.close()


def _ask(
    questions: IO[bytes], answers: IO[bytes], expression: str, driver: str, device: Device
) -> bool:
    facts = device.model_dump_json(by_alias=True, exclude_none=True)
    with suppress(BrokenPipeError):
        questions.write(json.dumps([expression, driver, facts]).encode() + b"\n")
        questions.flush()
    answer = answers.readline()
    if not answer.endswith(b"\n"):
        raise Undecided(
            f"the CEL takes more than {SECONDS} s or {_MEMORY >> 30} GiB to evaluate here"
        )
    verdict, words = json.loads(answer)
    if verdict is None:
        raise Undecided(words)
    if words:
        raise SelectorFails(words)
    return bool(verdict)


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
