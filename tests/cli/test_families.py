"""What is shown of each family's boards, and what containers get, as the documents have it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.ascend.container import driver_mounts, shared_nodes
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.lab.simulator import create_board, load_profile, profile_names

TABLE: Final = yaml.safe_load((Path(__file__).parent / "families.yaml").read_text())
BOARDS: Final[dict[str, dict[str, Any]]] = TABLE["boards"]
USUAL: Final[dict[str, str]] = TABLE["usual"]
CONTAINERS: Final[dict[str, dict[str, Any]]] = TABLE["containers"]

Inspect = Callable[..., str]


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
    assert sorted({profile_of(key) for key in BOARDS}) == profile_names()
    assert sorted(CONTAINERS) == sorted(ChipFamily)


@pytest.mark.parametrize("key", BOARDS)
def test_each_fact_has_a_source_or_is_invented(key: str) -> None:
    """Not both, and none is named for facts that the table does not have."""
    wanted, sources, invented = table_of(key)
    assert wanted.keys() <= {*USUAL, *sources, *invented}
    assert {*sources, *invented} <= wanted.keys()
    assert not sources.keys() & invented


def table_of(key: str) -> tuple[dict[str, Any], dict[str, str], set[str]]:
    """What the table has of a board: its facts, the sources that are its own, what is invented."""
    wanted = dict(BOARDS[key])
    return wanted, wanted.pop("sources"), set(wanted.pop("invented"))


def profile_of(key: str) -> str:
    """A board of the table may have its policy in its name."""
    return key.partition(" ")[0]


@pytest.fixture
def inspect(
    tmp_path: Path, simulator: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Inspect]:
    """Lays out a board of the table; what it returns runs `npu-dra inspect` on it."""

    def lay_out(key: str) -> Inspect:
        board = create_board(load_profile(profile_of(key)), tmp_path, prebuilt=simulator)
        if key.endswith(" independent"):
            with board.control() as control:
                control.set_multi_die_policy(independent=True)

        def run(*arguments: str) -> str:
            assert main(["inspect", *arguments, "--node-name=node", *board.flags()]) == 0
            return capsys.readouterr().out

        return run

    return lay_out


@pytest.mark.parametrize("key", BOARDS)
def test_a_board_is_shown_as_the_documents_have_it(
    key: str, inspect: Callable[[str], Inspect]
) -> None:
    """Each fact of the table, of each device; and each NPU has a die id and a share flag."""
    run, (wanted, _, _) = inspect(key), table_of(key)
    slices = list(yaml.safe_load_all(run("-o", "yaml")))
    devices = [facts(device) for one in slices for device in one["spec"]["devices"]]
    for fact in wanted.keys() - {"links"}:
        value = wanted[fact]
        values = value if isinstance(value, list) else [value] * len(wanted["name"])
        assert [device.get(fact) for device in devices] == values, fact
    chips = [device for device in devices if device["type"] == "npu"]
    assert len({device["uuid"] for device in chips}) == len(chips)
    assert {device["deviceShare"] for device in devices} == {False}

    first, *others = json.loads(run("--topology", "-o", "json"))["npus"]
    links = [first["links"].get(other["name"]) for other in others]
    assert links == (wanted["links"] or [None] * len(others))


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
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(exist_ok=True) if path.endswith("/") else place.touch()
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
    paths = [path.rstrip("/") for path in wanted["mounts"] + wanted.get("also", [])]
    assert [mount.host_path for mount in mounts] == paths
    assert {mount.options for mount in mounts} == {("ro", "rbind", "rprivate")}
