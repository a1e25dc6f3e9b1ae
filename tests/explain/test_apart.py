"""The limits within which selectors are evaluated."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dev.explain.selectors import ADMITTING, FAILING, HERE, NPU
from dev.explain.world import DRIVER, device
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided, selector
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches
from trio_npu_dra.tools.cluster.objects import AnyDevice

DEVICE = AnyDevice.model_validate(NPU)
_HUNDRED = f"[{','.join(map(str, range(100)))}]"
EXPENSIVE = f"{_HUNDRED}.map(a, {_HUNDRED}.map(b, {_HUNDRED}.map(c, a + b + c))).size() == 100"
"""Quick in the scheduler's library; half a minute in ours."""
_DOUBLED = "".join(f"cel.bind(x{at}, x{at - 1} + x{at - 1}, " for at in range(1, 40))
LARGE = f"cel.bind(x0, [1, 2], {_DOUBLED}x39.size() > 0{')' * 40}"
"""A list of 2**40 numbers."""


def test_the_answers_are_the_same_as_without_limits() -> None:
    """Whether a selector admits a device, fails, or cannot be decided."""
    with selector.apart() as decide:
        for expression in ADMITTING:
            assert decide(expression, DRIVER, DEVICE)
            assert not decide(f"!({expression.partition(' //')[0]})", DRIVER, DEVICE)
        for expression, why in FAILING:
            with pytest.raises(SelectorFails, match=why):
                decide(expression, DRIVER, DEVICE)
        shared = DEVICE.model_copy(update={"allow_multiple_allocations": True})
        assert decide("device.allowMultipleAllocations", DRIVER, shared)
        with pytest.raises(Undecided, match="`device` is used as a whole"):
            decide("device == 1", DRIVER, DEVICE)


@pytest.mark.parametrize("expression", [EXPENSIVE, LARGE], ids=["time", "memory"])
def test_what_takes_too_much_is_not_decided(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything after it: the limits are for all selectors together."""
    monkeypatch.setattr(selector, "SECONDS", 2)
    with selector.apart() as decide:
        assert decide("true", DRIVER, DEVICE)
        for asked in (expression, "!false", "!false"):
            with pytest.raises(Undecided, match="takes more than 2 s or 1 GiB"):
                decide(asked, DRIVER, DEVICE)


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        (f"{HERE}.model == '910B4'", 2),
        (f"cel.bind(mine, {HERE}, mine.model == '910B4')", 2),
        (f"'other' in {HERE}", 3),
        (f"{HERE}.exists(name, {HERE}[name] == 'b')", 3),
        (f"{HERE}['mo' + 'del'] == '910B4'", 3),
        (f'{HERE}["""model"""] == "910B4"', 3),
        (f"{HERE}.model.size() == 5 && {HERE}.exists(name, true)", 3),
    ],
)
def test_devices_that_are_alike_in_what_a_selector_reads_are_asked_about_once(
    expression: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it names all that it can read."""
    facts: tuple[dict[str, str | int | bool], ...] = (
        {"model": "910B4", "other": "a"},
        {"model": "910B4", "other": "b"},
        {"model": "910B1", "other": "é"},
    )
    devices = [AnyDevice.model_validate(device("npu", one)) for one in facts]
    ask, count = selector._ask, itertools.count()

    def counted(*arguments: Any) -> Any:
        next(count)
        return ask(*arguments)

    monkeypatch.setattr(selector, "_ask", counted)
    with selector.apart() as decide:
        here, there = ([_said(by, expression, one) for one in devices] for by in (matches, decide))
        again = [_said(decide, expression, one) for one in devices]
    assert here == there == again
    assert next(count) == asked


def _said(decide: Decide, expression: str, one: AnyDevice) -> bool | str:
    try:
        return decide(expression, DRIVER, one)
    except (SelectorFails, Undecided) as error:
        return str(error)
