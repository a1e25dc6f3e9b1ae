"""Findings about a kubelet, and about the plugins that register with it."""

from __future__ import annotations

import shutil
import socket

import pytest

from dev.rig.doctor_nodes import DRIVER, POD_UID, Node
from trio_npu_dra.tools.doctor import device_plugins, dra_drivers, kubelet
from trio_npu_dra.tools.doctor.finding import Finding, Level
from trio_npu_dra.tools.doctor.programs import programs

CONFIG = "var/lib/kubelet/config.yaml"
GATE = "featureGates: {DynamicResourceAllocation: false}\n"
GATE_OFF = "DynamicResourceAllocation=false"
ASCEND = "huawei.com/Ascend910"


def words(finding: Finding) -> tuple[str, str]:
    """Level and text."""
    return finding.level.value, finding.text


def test_gates_and_versions_are_judged(healthy: Node) -> None:
    """By flag, by the file that a flag names, by the API server."""
    healthy.write(CONFIG, GATE)
    healthy.run_program(201, "/usr/bin/kubelet", "--feature-gates", "A=true," + GATE_OFF)

    assert [words(finding) for finding in kubelet.check(healthy.places, "v1.33.4")] == [
        (
            "problem",
            "the feature gate DynamicResourceAllocation is off in its flag --feature-gates=A=true,"
            + GATE_OFF,
        ),
        ("problem", f"the feature gate DynamicResourceAllocation is off in /{CONFIG}"),
        (
            "problem",
            "the kubelet is of version v1.33.4, which knows no resource.k8s.io/v1",
        ),
    ]


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("v1.33.11", "problem"),
        ("v1.34.0", "ok"),
        ("v1.34.4-gke.1", "ok"),
        ("v1.100.0", "ok"),
        ("v2.0.0", "ok"),
    ],
)
def test_versions_from_1_34_on_know_dra(healthy: Node, version: str, level: str) -> None:
    """The first one that serves resource.k8s.io/v1 is not too old."""
    (finding,) = kubelet.check(healthy.places, version)
    assert finding.level.value == level


@pytest.mark.parametrize(
    "text", ["a: [", "a: 2026-99-99", "!!bool ''", "- a", "featureGates: yes", ""]
)
def test_odd_configuration_switches_nothing_off(healthy: Node, text: str) -> None:
    """One that cannot be parsed is named."""
    healthy.write(CONFIG, text)

    findings = [words(each) for each in kubelet.check(healthy.places, "v1.37.1")]

    assert findings[-1] == ("ok", "runs, version v1.37.1")
    assert [level for level, _ in findings[:-1]] == (
        ["not checked"] if text[:3] in {"a: ", "!!b"} else []
    )


def test_kubelet_that_has_ended_is_a_problem(healthy: Node) -> None:
    """Its socket is left."""
    path = healthy.places.device_plugins / "kubelet.sock"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(path))

    (finding,) = kubelet.check(healthy.places, "")

    assert words(finding) == (
        "problem",
        f"nothing listens on {path}: the kubelet does not run",
    )


def test_own_device_plugin_is_no_other_one(healthy: Node) -> None:
    """Nor are the pods that it serves another one's."""
    healthy.listen(healthy.places.device_plugins / f"{DRIVER}_huawei.com_Ascend910.sock")
    healthy.remember(ASCEND, "pod-a", devices=["Ascend910-0"])

    (finding,) = device_plugins.check(healthy.places)

    assert words(finding) == ("ok", f"no other one for NPUs; this driver serves {ASCEND}")


def test_devices_without_a_plugin_are_reported(healthy: Node) -> None:
    """Huawei's plugin has ended a moment ago, and left its socket; other sockets do not matter."""
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(healthy.places.device_plugins / "Ascend910.sock"))
    healthy.remember(ASCEND, devices=["Ascend910-0", "Ascend910-1"])
    healthy.listen(healthy.places.device_plugins / "gpu.sock")

    (finding,) = device_plugins.check(healthy.places)

    assert words(finding) == (
        "warning",
        f"the kubelet still knows 2 of {ASCEND}, and no plugin serves them",
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"Data": {"PodDeviceEntries": [{}]}}'])
def test_checkpoint_of_another_form_is_not_judged(healthy: Node, text: str) -> None:
    """It is named."""
    place = healthy.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", text)

    (finding,) = device_plugins.check(healthy.places)

    assert words(finding) == ("not checked", f"{place} is not what kubelets write")


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        (f"{DRIVER}-reg.sock", DRIVER),
        (f"{DRIVER}-0f8b6a3e-5a0c-4d4e-9d56-2f0d6a1f7c11-reg.sock", DRIVER),
        ("npu.example.com-reg.sock", "npu.example.com"),
    ],
)
def test_registrations_are_known_by_their_names(healthy: Node, name: str, driver: str) -> None:
    """With the UID of a pod in them or without; those of our instances are left out."""
    registrations = healthy.root / "r"  # a short path: unix sockets have 107 bytes
    (healthy.places.registrations / f"{DRIVER}-{POD_UID}-reg.sock").rename(healthy.root / "s")
    healthy.listen(registrations / name)
    registrations.rename(healthy.places.registrations.with_name("new"))

    folder = healthy.places.registrations
    folder.rmdir()
    folder.with_name("new").rename(folder)

    (finding,) = dra_drivers.check(healthy.places, (POD_UID,), ())

    assert f" {driver} " in finding.text
    assert f"({name})" in finding.text


def test_flags_of_programs_have_two_forms(healthy: Node) -> None:
    """The value is in the same word, or in the next."""
    healthy.run_program(10, "/bin/tool", "-c", "a", "--config=b", "--last")
    (tool,) = programs(healthy.places, "tool")

    assert tool.flag("-c") == "a"
    assert tool.flag("--config", "--other") == "b"
    assert tool.flag("--last") == ""
    assert tool.flag("--none") == ""


def test_pods_count_where_no_process_can_be_seen(healthy: Node) -> None:
    """Rather than that one is missed that runs."""
    healthy.remember(ASCEND, "pod-a")
    (finding,) = device_plugins.check(healthy.places)
    assert finding.level is Level.OK

    shutil.rmtree(healthy.places.processes)

    (finding,) = device_plugins.check(healthy.places)
    assert finding.text.startswith(f"1 pod still uses {ASCEND} from another plugin")
