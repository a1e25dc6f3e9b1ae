"""CEL selectors: what the scheduler says, or that we cannot tell."""

from __future__ import annotations

import pytest

from tests.explain.world import DRIVER, device
from trio_npu_dra.cluster.cel.selector import matches
from trio_npu_dra.cluster.cel.verdict import SelectorFails, Undecided
from trio_npu_dra.cluster.objects import Device

HERE = f'device.attributes["{DRIVER}"]'
SIZE = f'device.capacity["{DRIVER}"].memory'
NPU = Device.model_validate(
    device(
        "npu-0",
        {
            "model": "910B4",
            "cores": 20,
            "ok": True,
            "driverVersion": "v24.1.0-rc2",
            "resource.kubernetes.io/numaNode": 1,
        },
        {"memory": "32Gi"},
    )
)


@pytest.mark.parametrize(
    "expression",
    [
        f'device.driver == "{DRIVER}"',
        f'{HERE}.model == "910B4" && {HERE}.cores >= 20 && {HERE}.ok',
        f'{HERE}["model"] in ["910B4", "310P"]',
        'device.attributes["resource.kubernetes.io"].numaNode == 1',
        f'!has({HERE}.ring) && !has(device.attributes["nic.example.com"].speed)',
        f'"model" in {HERE} && !("nic.example.com" in device.attributes)',
        f'{HERE}.?ring.orValue("none") == "none" && {HERE}.?model.hasValue()',
        f'{HERE}[?"model"].orValue("none") == "910B4"',
        'device.attributes[?"nic.example.com"].?speed.orValue(1) == 1',
        'device.attributes[?"nic.example.com"].hasValue()',
        f'cel.bind(mine, {HERE}, mine.model == "910B4" && mine.cores < 21)',
        f'cel.bind(all, device.attributes, all["{DRIVER}"].cores == 20)',
        f'{SIZE}.compareTo(quantity("32768Mi")) == 0 && {SIZE} == quantity("32Gi")',
        f'{SIZE}.isGreaterThan(quantity("31Gi"))',
        f'{SIZE}.isLessThan(quantity("33G").add(quantity("2G")))',
        f'{SIZE}.sub(quantity("30Gi")).asInteger() == 2147483648 && {SIZE}.isInteger()',
        'isQuantity("5Mi") && !isQuantity("5 Mi") && quantity("500m").sign() == 1',
        f'{HERE}.driverVersion.isLessThan(semver("24.1.0"))',
        f'{HERE}.driverVersion.isGreaterThan(semver("24.1.0-rc1"))',
        f"{HERE}.driverVersion.major() == 24",
        'isSemver("1.2.3") && !isSemver("1.2") && semver("1.10.0").compareTo(semver("1.9.0")) == 1',
        f'{HERE}.nothing == "x" || true',
        f'["a", "910B4"].exists(one, one == {HERE}.model)',
        f'{HERE}.model.matches("^910B[0-9]$") && {HERE}.model.lowerAscii() == "910b4"',
        f"{HERE}.model == 910 ? false : true",
        "!device.allowMultipleAllocations // a comment",
    ],
)
def test_selectors_that_admit(expression: str) -> None:
    """Each is true for the device, and its negation is false."""
    assert matches(expression, DRIVER, NPU)
    assert not matches(f"!({expression.partition(' //')[0]})", DRIVER, NPU)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f'{HERE}.ring == "ring-0"', "no such key: ring"),
        ('device.attributes["nic.example.com"].speed == 1', "no such key: speed"),
        (f"{HERE}.model > 3", "no such overload"),
        (f"{HERE}.cores / 0 == 1", "division by zero"),
        (f'{HERE}.driverVersion.isLessThan(semver("24.1"))', "'24.1' is no semantic version"),
        (f'{SIZE}.compareTo(semver("1.0.0")) == 0', "no such overload"),
        (f"{HERE}.model", "neither true nor false"),
    ],
)
def test_selectors_that_fail(expression: str, why: str) -> None:
    """The scheduler gives up on the pod then."""
    with pytest.raises(SelectorFails, match=why):
        matches(expression, DRIVER, NPU)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f'{HERE}.model.split("B").size() == 2', "the CEL function split is not known here"),
        (f'{HERE}.driverVersion == "24.1.0"', "compared as if it were a string"),
        (f"{HERE}.?ring.?name.hasValue()", "follows an optional access"),
        (f'{HERE}.?ring.name == "x"', "follows an optional access"),
        ("device.attributes.exists(domain, true)", "used as a whole"),
        ('device == {"driver": "x"}', "used as a whole"),
        (f'{HERE}.model.size() == 5 || "é" == ""', "not ASCII"),
        ("unknown == 1", "a name that is not known here"),
        (f'{HERE}.model = "x"', "is not understood"),
        (f'{HERE}.model == (("x")', "does not parse"),
        (f'{HERE}.exists(key, value, key == "model")', "not known here"),
        (f"cel.bind(mine, {HERE}.ring, true || mine)", "cel.bind around something that fails"),
    ],
)
def test_selectors_that_are_left_to_the_scheduler(expression: str, why: str) -> None:
    """Whatever is not known to be the same here as there is not decided."""
    with pytest.raises(Undecided, match=why):
        matches(expression, DRIVER, NPU)


def test_a_list_is_not_decided() -> None:
    """Lists are in the alpha stage; a selector that does not name one is decided."""
    listed = Device.model_validate({"name": "x", "attributes": {"nodes": {"ints": [1, 2]}}})

    assert matches(f'!("model" in {HERE})', DRIVER, listed)
    with pytest.raises(Undecided, match="is a list"):
        matches(f"1 in {HERE}.nodes", DRIVER, listed)
