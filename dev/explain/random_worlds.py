"""Random claims and pools: for a brute force in this process, and for the real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from dev.explain.world import DRIVER, Wire, ask, claim, device, slice_, with_results

TAINT = {"key": f"{DRIVER}/fault", "value": "SeparateNPU", "effect": "NoSchedule"}
HERE = f'device.attributes["{DRIVER}"]'
SIZE = f'device.capacity["{DRIVER}"].memory'
SELECTORS = (
    f'{HERE}.model == "a"',
    f'{HERE}.model != "b" && {HERE}.cores >= 20',
    f'{SIZE}.compareTo(quantity("32Gi")) >= 0',
    f'{SIZE} == quantity("32768Mi") || {HERE}.model == "b"',
    f'has({HERE}.ring) && {HERE}.ring == "r0"',
    f'{HERE}.?ring.orValue("r1") == "r1"',
    f'"ring" in {HERE}',
    f'{HERE}.model in ["a", "b"]',
    f'cel.bind(mine, {HERE}, mine.model == "a" || mine.cores == 10)',
    f'{HERE}.version.isGreaterThan(semver("1.5.0"))',
    f'{HERE}.model.startsWith("a")',
    f"{HERE}.cores + 10 < 40",
    "!device.allowMultipleAllocations",
    f'["a", "c"].exists(one, one == {HERE}.model)',
    f'device.driver.matches("^npu[.]") && device.driver == "{DRIVER}"',
)
NEWER = "allowMultipleAllocations"
"""What no selector may name before 1.36."""
FAILING = (f'{HERE}.ring == "r0"', f"{HERE}.model > 3", f'{HERE}.nothing == "x"')


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One node with devices, the claims of others, and those of the pod.

    Attributes:
        node: The name of the node.
        slices: What the node has.
        others: Claims that are allocated.
        claims: Claims that are not.
    """

    node: str
    slices: tuple[Wire, ...]
    others: tuple[Wire, ...]
    claims: tuple[Wire, ...]


class Maker:
    """Makes one world.

    Args:
        seed: The same seed makes the same world.
        shares: Whether the API server keeps what is newer than 1.34: taints, counters, shares.
    """

    def __init__(self, seed: int, *, shares: bool = True) -> None:
        self._random = Random(seed)  # noqa: S311 - worlds, no secrets
        self._is_new = shares
        self._node = f"case-{seed}"
        self._is_cut = shares and self._chance(0.25)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def world(self) -> World:
        """The world."""
        devices = [self._device(number) for number in range(self._random.randint(1, 6))]
        claims = tuple(
            self._claim(f"{self._node}-{letter}")
            for letter in "ab"[: self._random.choice((1, 1, 1, 2))]
        )
        return World(
            node=self._node,
            slices=tuple(self._slices(devices)),
            others=tuple(self._others(devices)),
            claims=claims,
        )

    def _device(self, number: int) -> Wire:
        pick = self._random.choice
        attributes: dict[str, str | int | bool] = {
            "model": pick("ab"),
            "cores": pick((10, 20, 25)),
            "version": pick(("v1.0.0", "v2.1.0-rc1")),
        }
        if self._chance(0.8):
            attributes["ring"] = pick(("r0", "r1"))
        memory: Wire = {"value": pick(("16Gi", "32Gi", "64Gi"))}
        more: dict[str, Any] = {}
        if self._is_new and self._chance(0.2):
            more["taints"] = [{**TAINT, "effect": pick(("NoSchedule", "NoExecute", "None"))}]
        if self._is_new and self._chance(0.2):
            more["allowMultipleAllocations"] = True
            if self._chance(0.6):
                memory["requestPolicy"] = {
                    "default": "8Gi",
                    "validRange": {"min": "4Gi", "step": "4Gi"},
                }
        if self._is_cut and self._chance(0.7):
            amount = pick(("1", "2", "4"))
            more["consumesCounters"] = [
                {"counterSet": pick(("s0", "s1")), "counters": {"slots": {"value": amount}}}
            ]
        return device(f"npu-{number}", attributes, {"memory": memory}, **more)

    def _slices(self, devices: list[Wire]) -> Iterator[Wire]:
        """One or two slices of devices, one of counters; a few pools are not complete."""
        parts = [devices]
        if len(devices) > 1 and self._chance(0.3):
            parts = [devices[:1], devices[1:]]
        if self._chance(0.04) and len(parts) > 1:
            parts[1] = [{**parts[1][0], "name": parts[0][0]["name"]}, *parts[1][1:]]
        count = len(parts) + self._is_cut + self._chance(0.05)
        for number, part in enumerate(parts):
            name = f"{self._node}-{number}"
            yield slice_(name, *part, node=self._node, count=count)
        if self._is_cut:
            sets = [{"name": name, "counters": {"slots": {"value": "4"}}} for name in ("s0", "s1")]
            name = f"{self._node}-counters"
            yield slice_(name, node=self._node, count=count, sharedCounters=sets)

    def _others(self, devices: list[Wire]) -> Iterator[Wire]:
        for number, one in enumerate(devices):
            if not self._chance(0.25):
                continue
            made = claim(f"{self._node}-other-{number}", ask(count=1))
            result: Wire = {
                "request": "npu",
                "driver": DRIVER,
                "pool": self._node,
                "device": one["name"],
            }
            if one.get("allowMultipleAllocations"):
                amount = self._random.choice(("4Gi", "8Gi", "16Gi"))
                result["shareID"] = f"00000000-0000-4000-8000-{number:012}"
                result["consumedCapacity"] = {"memory": amount}
            yield with_results(made, [result], node=self._node)

    def _claim(self, name: str) -> Wire:
        requests = [self._request(f"r{number}") for number in range(self._random.choice((1, 1, 2)))]
        constraints: list[Wire] = []
        if self._chance(0.35):
            kind = self._random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            what = self._random.choice(("ring", "model"))
            constraints.append({kind: f"{DRIVER}/{what}"})
            if self._chance(0.3):
                constraints[0]["requests"] = ["r0"]
        if not self._is_new:
            constraints = [one for one in constraints if "distinctAttribute" not in one]
        return claim(name, *requests, constraints=constraints)

    def _request(self, name: str) -> Wire:
        if self._chance(0.15):
            subs = [{"name": f"s{at}", **self._ask()} for at in range(self._random.randint(1, 3))]
            return {"name": name, "firstAvailable": subs}
        return {"name": name, "exactly": self._ask()}

    def _ask(self) -> Wire:
        count = self._random.choice((0, 1, 1, 1, 2, 2, 3))
        mode: Wire = {"allocationMode": "All"} if count == 0 else {"count": count}
        known = [one for one in SELECTORS if self._is_new or NEWER not in one]
        expressions = self._random.sample(known, k=self._random.choice((0, 1, 1, 2)))
        if self._chance(0.06):
            expressions.append(self._random.choice(FAILING))
        more: dict[str, Any] = {}
        if self._is_new and self._chance(0.3):
            more["tolerations"] = [{"operator": "Exists"}]
        if self._is_new and self._chance(0.15):
            amount = self._random.choice(("4Gi", "10Gi", "40Gi"))
            more["capacity"] = {"requests": {"memory": amount}}
        return ask(*expressions, **mode, **more)
