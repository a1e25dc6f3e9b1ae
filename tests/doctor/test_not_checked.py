"""What `npu-dra doctor` says of checks that it could not make, and how gates end with it."""

from __future__ import annotations

import json
import shutil

import pytest

from dev.rig.doctor_nodes import Node
from tests.nobody import closed
from trio_npu_dra.tools.cli.doctor import exit_code
from trio_npu_dra.tools.doctor import chips, device_plugins, dra_drivers, own_state
from trio_npu_dra.tools.doctor import kubelet as kubelet_checks
from trio_npu_dra.tools.doctor.finding import Check, Finding, Level


def test_folders_that_are_not_there_are_not_judged(healthy: Node) -> None:
    """As where the kubelet's are not mounted; each check says why, and none ends the command."""
    shutil.rmtree(healthy.root / "var")
    shutil.rmtree(healthy.root / "proc")
    (healthy.root / "etc/containerd/config.toml").unlink()

    code, text = healthy.doctor()

    assert code == 0
    levels = {check: [level for level, _ in found] for check, found in healthy.findings().items()}
    assert [check for check, found in levels.items() if found == ["not checked"]] == [
        *("device plugins", "DRA drivers", "container runtime", "kubelet", "API server"),
        "this driver",
    ], text
    assert "cannot read /var/lib/kubelet/plugins: No such file or directory\n    -> Is this" in text
    assert "as root" not in text
    assert text.endswith("\nproblems: 0, warnings: 0, not checked: 6\n")


def test_folders_that_are_out_of_reach_need_root(healthy: Node) -> None:
    """Not another folder; the kubelet's are those of root."""
    kubelet = healthy.root / "var/lib/kubelet"
    found = healthy.places
    with closed(*(folder for folder in kubelet.iterdir() if folder.is_dir())):
        looks = (
            *device_plugins.check(found),
            *dra_drivers.check(found, (), ()),
            *kubelet_checks.check(found, ""),
            *own_state.look(found).findings,
        )

    unseen = [each for each in looks if each.text.endswith(": Permission denied")]
    assert len(unseen) >= 4
    assert {each.level.value for each in unseen} == {"not checked"}
    assert not [each for each in unseen if "kubelet, and are" in each.action]
    assert "Run it as root, on the node or in the driver's pod." in {one.action for one in unseen}
    assert not [each for each in looks if each.level.value == "problem"]


async def test_a_root_of_the_host_that_is_out_of_reach_has_npus_or_not(healthy: Node) -> None:
    """Nothing ends the command, and no check says that there are none."""
    found = healthy.places
    with closed(healthy.root):
        (driver,) = chips.judge_driver(await chips.look(found))
    assert (driver.level.value, driver.action) == (
        "not checked",
        "Run it as root, on the node or in the driver's pod.",
    )


def test_a_gate_wants_each_check_made_and_all_well(healthy: Node) -> None:
    """With `--strict` a warning, and a check that was not made, count as well."""
    assert healthy.doctor()[0] == 0
    assert healthy.doctor("--strict")[0] == 1, "the API server was not asked"
    wire = json.loads(healthy.doctor("--strict", "--output=json")[1])
    assert (wire["problems"], wire["warnings"], wire["notChecked"]) == (0, 0, 1)


@pytest.mark.parametrize(
    ("levels", "lenient", "strict"),
    [
        ((Level.OK,), 0, 0),
        ((Level.OK, Level.WARNING), 0, 1),
        ((Level.OK, Level.NOT_CHECKED), 0, 1),
        ((Level.PROBLEM, Level.WARNING), 1, 1),
    ],
)
def test_exit_code_is_that_of_the_levels(
    levels: tuple[Level, ...], lenient: int, strict: int
) -> None:
    """Of what was found, not of how much."""
    checks = [Check(name="kubelet", findings=(Finding(level=one, text=""),)) for one in levels]
    assert (exit_code(checks, is_strict=False), exit_code(checks, is_strict=True)) == (
        lenient,
        strict,
    )
