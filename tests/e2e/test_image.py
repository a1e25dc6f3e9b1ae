"""The image: what libdcmi.so looks for in it is there, and little else (docs/image.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.cluster.driver import NAMESPACE, Driver

pytestmark = pytest.mark.cluster

Run = Callable[..., str]


@pytest.fixture(scope="module")
def inside(driver: Driver) -> Run:
    """Runs a program in the driver's container; returns its stdout."""
    name = driver.wait_ready()["metadata"]["name"]

    def run(*command: str) -> str:
        return driver.cluster.execute(
            name, *command, namespace=NAMESPACE, container="kubeletplugin"
        )

    return run


def test_library_can_tell_that_it_is_in_a_container(inside: Run) -> None:
    """It runs mount and grep by a shell, and looks for the runtime in the line about `/`."""
    root = inside("sh", "-c", r"/bin/mount 2>&1 | grep -E '\s+/\s+'")
    assert "containerd" in root
    assert root == inside("sh", "-c", r"/usr/bin/mount 2>&1 | grep -E '\s+/\s+'")


def test_library_can_look_for_cards(inside: Run) -> None:
    """It runs find, grep, awk and cut over /sys, by a shell, and reads what they write."""
    look = "/usr/bin/find /sys/devices -maxdepth 1 -name '[r-t][x-z]*' 2>/dev/null | grep '[r-t]y'"
    assert (
        inside("sh", "-c", f"{look} | awk -F 'sys/' '{{print $2}}' | cut -d / -f 2-") == "system\n"
    )


def test_driver_answers_without_a_shell(inside: Run) -> None:
    """What the README has people run with kubectl exec."""
    for command in ("health", "inspect"):
        assert "npu-0" in inside("npu-dra", command)


def test_image_has_what_its_inventory_says(inside: Run) -> None:
    """Licences of each package, no set-user-ID file, no compiler, no package manager, no pip."""
    packages = inside("find", "/var/lib/dpkg/status.d", "-type", "f").split()
    for package in packages:
        name = package.rpartition("/")[2]
        assert inside("find", f"/usr/share/doc/{name}/", "-name", "copyright"), name
    assert inside("find", "/", "-xdev", "-type", "f", "-perm", "/6000") == ""
    names = ("pip*", "apt*", "dpkg*", "*gcc*", "bash", "perl*")
    named = [word for name in names for word in ("-o", "-name", name)][1:]
    assert inside("find", "/usr", "/opt", "-path", "*/bin/*", "(", *named, ")") == ""
    ours = inside("find", "/usr/share/doc/trio-npu-dra", "-type", "f").split()
    assert {path.rpartition("/")[2] for path in ours} == {"LICENSE", "NOTICE"}
