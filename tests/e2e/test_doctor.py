"""`npu-dra doctor` in the driver's pod, on a real node."""

from __future__ import annotations

import json

import pytest

from dev.cluster.driver import Driver

pytestmark = pytest.mark.cluster

CODE = "from trio_npu_dra.agent.cli.main import main; print(main())"
"""The image has no shell that could tell the exit code; kubectl tells it without the output."""
DOCTOR = ("python3", "-c", CODE, "doctor", "--output=json")


def doctor(driver: Driver) -> tuple[int, list[dict[str, str]]]:
    """Its exit code, and what it finds."""
    text = driver.execute(*DOCTOR)
    findings, _, code = text.rstrip().rpartition("\n")
    return int(code), json.loads(findings)["findings"]


def test_pod_sees_all_of_a_healthy_node(driver: Driver) -> None:
    """What is mounted is enough for each check, and all is well."""
    code, found = doctor(driver)

    assert code == 0, found
    levels = {each["check"]: each["level"] for each in found}
    # For five minutes the kubelet knows the devices that an earlier test's plugin served.
    assert levels.pop("device plugins") in {"ok", "warning"}, found
    assert levels == dict.fromkeys(
        (
            *("Ascend driver", "NPUs in use", "NPUs divided", "NPU addresses", "DRA drivers"),
            *("container runtime", "kubelet", "API server", "this driver"),
        ),
        "ok",
    ), found
    assert len(found) == len(levels) + 1, found
    said = {each["check"]: each["text"] for each in found}
    assert said["Ascend driver"].endswith(", 8 NPUs (910B4)")
    assert ".toml) has CDI on" in said["container runtime"]
    assert said["kubelet"].startswith("runs, version v1.")


def test_process_of_the_node_on_an_npu_is_a_problem(driver: Driver) -> None:
    """It is no pod's, and the exit code says that there is a problem."""
    pid = int(driver.node.execute("pgrep", "-o", "-x", "containerd"))
    with driver.board() as board:
        board.set_processes(3, [(pid, 1 << 20)])
        try:
            code, found = doctor(driver)
        finally:
            board.set_processes(3, [])

    assert code == 1
    (problem,) = (each["text"] for each in found if each["level"] == "problem")
    assert problem == f"npu-3 is used outside of Kubernetes, by process {pid} (containerd)"
