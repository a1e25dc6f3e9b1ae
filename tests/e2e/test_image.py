"""The image: what libdcmi.so looks for in it is there, and little else (docs/image.md)."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver

pytestmark = pytest.mark.cluster


def test_library_can_tell_that_it_is_in_a_container(driver: Driver) -> None:
    """It runs mount and grep by a shell, and looks for the runtime in the line about `/`."""
    root = driver.execute("sh", "-c", r"/bin/mount 2>&1 | grep -E '\s+/\s+'")
    assert "containerd" in root
    assert root == driver.execute("sh", "-c", r"/usr/bin/mount 2>&1 | grep -E '\s+/\s+'")


def test_library_can_look_for_cards(driver: Driver) -> None:
    """It runs find, grep, awk and cut over /sys, by a shell, and reads what they write."""
    look = "/usr/bin/find /sys/devices -maxdepth 1 -name '[r-t][x-z]*' 2>/dev/null | grep '[r-t]y'"
    assert (
        driver.execute("sh", "-c", f"{look} | awk -F 'sys/' '{{print $2}}' | cut -d / -f 2-")
        == "system\n"
    )


def test_image_has_what_its_inventory_says(driver: Driver) -> None:
    """Licences of each package, no set-user-ID file, no compiler, no package manager, no pip."""
    packages = driver.execute("find", "/var/lib/dpkg/status.d", "-type", "f").split()
    for package in packages:
        name = package.rpartition("/")[2]
        assert driver.execute("find", f"/usr/share/doc/{name}/", "-name", "copyright"), name
    assert driver.execute("find", "/", "-xdev", "-type", "f", "-perm", "/6000") == ""
    names = ("pip*", "apt*", "dpkg*", "*gcc*", "bash", "perl*")
    named = [word for name in names for word in ("-o", "-name", name)][1:]
    assert driver.execute("find", "/usr", "/opt", "-path", "*/bin/*", "(", *named, ")") == ""
    ours = driver.execute("find", "/usr/share/doc/trio-npu-dra", "-type", "f").split()
    assert {path.rpartition("/")[2] for path in ours} == {"LICENSE", "NOTICE"}
