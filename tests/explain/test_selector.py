"""CEL selectors: what the scheduler says, or that we cannot tell."""

from __future__ import annotations

import pytest

from dev.explain.selectors import ADMITTING, FAILING, HERE, NPU
from dev.explain.world import DRIVER
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import matches
from trio_npu_dra.tools.cluster.objects import AnyDevice

DEVICE = AnyDevice.model_validate(NPU)


@pytest.mark.parametrize("expression", ADMITTING)
def test_selectors_that_admit(expression: str) -> None:
    """Each is true for the device, and its negation is false."""
    assert matches(expression, DRIVER, DEVICE)
    assert not matches(f"!({expression.partition(' //')[0]})", DRIVER, DEVICE)


@pytest.mark.parametrize(("expression", "why"), FAILING)
def test_selectors_that_fail(expression: str, why: str) -> None:
    """The scheduler gives up on the pod then."""
    with pytest.raises(SelectorFails, match=why):
        matches(expression, DRIVER, DEVICE)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (
            f'{HERE}.model.split("B").size() == 2',
            "this program does not implement the CEL function split",
        ),
        (f'{HERE}.driverVersion == "24.1.0"', "compared as if it were a string"),
        (f"{HERE}.?ring.?name.hasValue()", "follows an optional access"),
        (f'{HERE}.?ring.name == "x"', "follows an optional access"),
        (f"{HERE}.?ring.name", "follows an optional access"),
        (f'{HERE}.?ring["x"] == 1', "follows an optional access"),
        (f'{HERE}[?"ring"].name == "x"', "follows an optional access"),
        (f'device.attributes[?"{DRIVER}"].model == "x"', "follows an optional access"),
        (f'{HERE}.?"ring".hasValue()', "followed by no name"),
        ("device.attributes.exists(domain, true)", "used as a whole"),
        ('device == {"driver": "x"}', "used as a whole"),
        (f'{HERE}.model.size() == 5 || "é" == ""', "not ASCII"),
        ("unknown == 1", "does not know a name in it"),
        (f'{HERE}.model = "x"', "is not understood"),
        (f'{HERE}.model == (("x")', "does not parse"),
        (f'{HERE}.exists(key, value, key == "model")', "does not implement"),
        (f"-{HERE}.cores < 0", "a minus sign"),
        (f"0 > -{HERE}.cores", "a minus sign"),
        (f"[1, 2].all(one, one < {HERE}.ring)", "all around something that fails"),
        (f"cel.bind(mine, {HERE}.ring, true || mine)", "bind around something that fails"),
    ],
)
def test_selectors_that_are_left_to_the_scheduler(expression: str, why: str) -> None:
    """Whatever is not known to be the same here as there is not decided."""
    with pytest.raises(Undecided, match=why):
        matches(expression, DRIVER, DEVICE)


def test_a_list_is_not_decided() -> None:
    """Lists are in the alpha stage; a selector that does not name one is decided."""
    listed = AnyDevice.model_validate({"name": "x", "attributes": {"nodes": {"ints": [1, 2]}}})

    assert matches(f'!("model" in {HERE})', DRIVER, listed)
    with pytest.raises(Undecided, match="is a list"):
        matches(f"1 in {HERE}.nodes", DRIVER, listed)
