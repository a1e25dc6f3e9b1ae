"""CDI files say what a container gets, in the terms that old runtimes know."""

import json
import stat
from dataclasses import replace

import pytest

from tests.claims.node import NodeOnDisk
from tests.holds.entries import held
from tests.synced import syncs
from trio_npu_dra.agent.config.model import EffectiveConfig
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.holds.entry import host_nodes


def node_edit(name: str) -> dict[str, object]:
    """The edit that gives a container a device node."""
    path = f"/dev/{name}"
    edit = {"path": path, "hostPath": path, "type": "c", "permissions": "rwm", "fileMode": 438}
    return {**edit}


def write(cdi: CdiFolder) -> bool:
    """Make the file of claim `uid-a`, which has NPU 0, by what the host has now."""
    return cdi.write("uid-a", cdi.render("uid-a", [held("npu-0", 0)]))


def test_a_spec_has_shared_edits_once_and_each_npu_as_a_device(node: NodeOnDisk) -> None:
    """The whole file, as containerd reads it."""
    cdi = replace(node.cdi(), libraries=Libraries(path="/a:/b"))

    assert cdi.render("uid-a", [held("npu-0", 0)]) == {
        "cdiVersion": "0.5.0",
        "kind": "npu.huawei.com/npu",
        "containerEdits": {
            "env": ["ASCEND_VISIBLE_DEVICES=void", "LD_LIBRARY_PATH=/a:/b"],
            "deviceNodes": [
                *map(node_edit, ("davinci_manager", "devmm_svm", "hisi_hdc", "dvpp_cmdlist"))
            ],
            "mounts": [
                {
                    "hostPath": "/usr/local/Ascend/driver/lib64",
                    "containerPath": "/usr/local/Ascend/driver/lib64",
                    "options": ["ro", "rbind", "rprivate"],
                }
            ],
        },
        "devices": [
            {"name": "uid-a-npu-0", "containerEdits": {"deviceNodes": [node_edit("davinci0")]}},
        ],
    }


def test_a_module_is_one_device_with_the_nodes_of_both_dies(node: NodeOnDisk) -> None:
    """They go into a container together; without mounts the spec has no empty list."""
    module = held("module-1", 2, 3)._replace(config=EffectiveConfig(driver_mounts=False))
    (node.root / "host/usr/local/Ascend/driver/lib64").rmdir()  # so it needs no files
    spec = node.cdi().render("uid-a", [module])

    assert "mounts" not in spec["containerEdits"]
    (device,) = spec["devices"]
    assert device["name"] == "uid-a-module-1"
    assert device["containerEdits"]["deviceNodes"] == [node_edit(f"davinci{n}") for n in (2, 3)]
    assert {*host_nodes(spec)} >= {"/dev/davinci_manager", "/dev/davinci2", "/dev/davinci3"}


@pytest.mark.parametrize(
    "spec", [5, {"deviceNodes": 5}, {"a": {"deviceNodes": [5, {"path": "x"}, {"hostPath": 1}]}}]
)
def test_nodes_of_a_spec_of_another_version_are_those_that_are_understood(spec: object) -> None:
    """Here none."""
    assert [*host_nodes(spec)] == []


def test_a_file_hands_out_the_nodes_that_it_names(node: NodeOnDisk) -> None:
    """Also one of which a part is left; by nodes, whatever the devices are called."""
    cdi, path = node.cdi(), node.cdi_path("uid-a")
    assert not cdi.hands_out("uid-a", ["/dev/davinci2"])
    cdi.write("uid-a", cdi.render("uid-a", [held("module-1", 2, 13)]))

    for _ in ("whole", "cut"):
        assert cdi.hands_out("uid-a", ["/dev/davinci9", "/dev/davinci2"])
        assert cdi.hands_out("uid-a", ["/dev/davinci13"])
        assert not cdi.hands_out("uid-a", ["/dev/davinci1", "/dev/davinci3"])
        path.write_bytes(path.read_bytes()[:-20])


def test_the_driver_name_is_the_vendor(node: NodeOnDisk) -> None:
    """In kind, file name and device id."""
    cdi = replace(node.cdi(), driver_name="x.org")
    write(cdi)

    assert json.loads((node.cdi_root / "x.org-npu_uid-a.json").read_bytes())["kind"] == "x.org/npu"
    assert cdi.device_id("uid-a", "npu-0") == "x.org/npu=uid-a-npu-0"


def test_a_right_file_is_left_alone_and_a_wrong_one_is_replaced(node: NodeOnDisk) -> None:
    """Readable for every runtime, and nothing is left beside it."""
    cdi, path = node.cdi(), node.cdi_path("uid-a")

    assert write(cdi)
    first = path.stat()
    assert not write(cdi)
    assert path.stat().st_ino == first.st_ino
    assert stat.S_IMODE(first.st_mode) == 0o644

    right = path.read_bytes()
    path.write_bytes(right[:20])
    assert write(cdi)
    assert path.read_bytes() == right
    assert list(node.cdi_root.iterdir()) == [path]


def test_a_file_is_written_without_waiting_for_the_disk(node: NodeOnDisk) -> None:
    """The folder and its parents are made; the file can be written again at any time."""
    cdi = replace(node.cdi(), root=node.root / "etc/cdi")
    with syncs(node.root) as states:
        assert write(cdi)

    assert states == []
    assert len(list(cdi.root.iterdir())) == 1


def test_a_scan_finds_our_files_only(node: NodeOnDisk) -> None:
    """The folder belongs to the node; a missing one is empty."""
    cdi = node.cdi()
    assert cdi.scan() == {}
    write(cdi)
    for other in (
        "npu.huawei.com-npu_b.yaml",
        "x.org-npu_c.json",
        ".npu.huawei.com-npu_d.json.5f3a01c2",
    ):
        (node.cdi_root / other).write_text("")

    assert cdi.scan() == {"uid-a": True}

    cdi.remove("uid-a")
    cdi.remove("uid-a")
    cdi.remove_unfinished()
    assert {path.name for path in node.cdi_root.iterdir()} == {
        "npu.huawei.com-npu_b.yaml",
        "x.org-npu_c.json",
    }
