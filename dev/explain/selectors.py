"""Selectors and what the scheduler makes of them; `dev.explain.agreement` asks it."""

from __future__ import annotations

from dev.explain.world import DRIVER, device

HERE = f'device.attributes["{DRIVER}"]'
SIZE = f'device.capacity["{DRIVER}"].memory'
NPU = device(
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

ADMITTING = (
    f'device.driver == "{DRIVER}"',
    f'{HERE}.model == "910B4" && {HERE}.cores >= 20 && {HERE}.ok',
    f'{HERE}["model"] in ["910B4", "310P"]',
    'device.attributes["resource.kubernetes.io"].numaNode == 1',
    f'!has({HERE}.ring) && !has(device.attributes["nic.example.com"].speed)',
    f'has({HERE}.driverVersion) && {HERE}["driverVersion"].minor() == 1',
    f'!has(device.attributes.nic.speed) && {HERE}["cores"] - {HERE}.cores == 0',
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
    'quantity("-1k").isInteger() && quantity("-1k").asInteger() < 0',
    'isQuantity("5Mi") && !isQuantity("5 Mi")',
    f'{HERE}.driverVersion.isLessThan(semver("24.1.0"))',
    f'{HERE}.driverVersion.isGreaterThan(semver("24.1.0-rc1"))',
    f"{HERE}.driverVersion.major() == 24 && {HERE}.driverVersion.minor() == 1",
    'quantity("1500m").asApproximateFloat() == 1.5 && semver("1.2.3").patch() == 3',
    f'{HERE}.model != "é" && "ab".upperAscii() == "AB" && {HERE}.model.contains("B4")',
    f'int("20") == {HERE}.cores && {HERE}.cores == 20.0 && double("1.5") > 1',
    f'{HERE}.model.size() + size({HERE}) == 9 && {HERE}.model.endsWith("4")',
    f'{HERE}.exists(name, name == "ok") && [1, 2].all(one, one < {HERE}.cores)',
    f"[1, 2, 3].filter(one, one > 1).map(one, one * 10).exists_one(ten, ten == {HERE}.cores)",
    f"optional.of({HERE}.cores).value() == 20 && {HERE}.cores % 7 == 6",
    f"dyn({HERE}.cores) == 20u && {HERE}.?cores.hasValue()",
    'isSemver("1.2.3") && !isSemver("1.2") && semver("1.10.0").compareTo(semver("1.9.0")) == 1',
    f'{HERE}.nothing == "x" || true',
    f'["a", "910B4"].exists(one, one == {HERE}.model)',
    f'{HERE}.model.matches("^910B[0-9]$") && {HERE}.model.lowerAscii() == "910b4"',
    f"{HERE}.model == 910 ? false : true",
    "!device.allowMultipleAllocations // a comment",
)
"""They are true for that device."""

FAILING = (
    (f'{HERE}.ring == "ring-0"', "no such key: ring"),
    ('device.attributes["nic.example.com"].speed == 1', "no such key: speed"),
    (f"{HERE}.model > 3", "no such overload"),
    ('dyn(semver("1.2.3")).asInteger() == 1', "no such overload"),
    (f"{HERE}.cores / 0 == 1", "division by zero"),
    (f'{HERE}.driverVersion.isLessThan(semver("24.1"))', "'24.1' is no semantic version"),
    (f"{HERE}.model", "neither true nor false"),
)
"""The scheduler gives up on the pod; with a part of why."""
