"""What is shown of each family's boards, and what containers get, as the documents have it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from trio_npu_dra.cli.main import main
from trio_npu_dra.npu.container import driver_mounts, shared_nodes
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import ChipFamily
from trio_npu_dra.simulator import create_board, load_profile, profile_names

TABLE: Final = yaml.safe_load((Path(__file__).parent / "families.yaml").read_text())
BOARDS: Final[dict[str, dict[str, Any]]] = TABLE["boards"]
CONTAINERS: Final[dict[str, dict[str, Any]]] = TABLE["containers"]


@pytest.fixture
def _log_as_before() -> Iterator[None]:
    """The command sets up the log of its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def facts(device: dict[str, Any]) -> dict[str, Any]:
    """Name, attributes and capacities of a device by their names, without Kubernetes' domain."""
    attributes = {
        name.rpartition("/")[2]: next(iter(value.values()))
        for name, value in device["attributes"].items()
    }
    capacities = {name: value["value"] for name, value in device["capacity"].items()}
    return {"name": device["name"]} | attributes | capacities


def test_each_profile_is_in_the_table() -> None:
    """A board that is simulated is one of which the documents say something."""
    assert sorted(BOARDS) == profile_names()
    assert sorted(CONTAINERS) == sorted(ChipFamily)


@pytest.mark.usefixtures("_log_as_before")
@pytest.mark.parametrize("profile", BOARDS)
def test_a_board_is_shown_as_the_documents_have_it(
    profile: str, tmp_path: Path, simulator: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fact of the table, of each device; and each NPU has a die id and a share flag."""
    board = create_board(load_profile(profile), tmp_path, prebuilt=simulator)
    assert main(["inspect", "-o", "yaml", "--node-name=node", *board.flags()]) == 0
    slices = list(yaml.safe_load_all(capsys.readouterr().out))
    devices = [facts(device) for one in slices for device in one["spec"]["devices"]]
    expected = BOARDS[profile]
    count = len(expected["name"])
    for fact, value in expected.items():
        values = value if isinstance(value, list) else [value] * count
        assert [device.get(fact) for device in devices] == values, fact
    chips = [device for device in devices if device["type"] == "npu"]
    assert len({device["uuid"] for device in chips}) == len(chips)
    assert {device["deviceShare"] for device in devices} == {False}


@pytest.fixture(scope="module")
def full_host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with each node and path that a container of some family gets."""
    root = tmp_path_factory.mktemp("host")
    for wanted in CONTAINERS.values():
        for name in (*wanted["nodes"], wanted.get("manager", "davinci_manager"), "davinci0"):
            node = root / "dev" / name
            node.parent.mkdir(parents=True, exist_ok=True)
            if not node.is_symlink():
                node.symlink_to("/dev/null")
        for path in (*wanted["mounts"], *wanted.get("also", ())):
            (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return Host(host_root=root, dev_root=root / "dev", sysfs_root=root / "sys")


@pytest.mark.parametrize("family", list(ChipFamily))
def test_a_container_gets_the_nodes_and_mounts_of_its_family(
    full_host: Host, family: ChipFamily
) -> None:
    """Those of the table, and none of another family."""
    wanted = CONTAINERS[family]
    nodes = shared_nodes(full_host, family)
    assert [node.path for node in nodes] == [f"/dev/{name}" for name in wanted["nodes"]]
    manager = wanted.get("manager", "davinci_manager")
    assert nodes[0].host_path == f"/dev/{manager}"
    mounts = driver_mounts(full_host, family)
    assert [mount.host_path for mount in mounts] == wanted["mounts"] + wanted.get("also", [])
    assert {mount.options for mount in mounts} == {("ro", "rbind", "rprivate")}
