"""The command line as people use it."""

import gc
import importlib
import json
import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dev.rig.boards import a3, die, partition, split
from dev.site.unhealthy_boards import npu
from trio_npu_dra.agent.cli.main import COMMANDS, main
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.lab.cli.demo import TIME_LIMIT_SECONDS
from trio_npu_dra.lab.simulator import Severity, SimulatedBoard, create_board, load_profile
from trio_npu_dra.tools.cli.inspect import _table


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory, simulator: Path) -> SimulatedBoard:
    """A board with eight NPUs."""
    folder = tmp_path_factory.mktemp("board")
    return create_board(load_profile("910b4-8"), folder, prebuilt=simulator)


def npu_dra(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "trio_npu_dra.agent.cli.main", *words]
    limit = TIME_LIMIT_SECONDS + 30  # the demo ends by itself before, and says why
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)


def test_what_is_imported_is_not_looked_through_for_garbage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while a command is imported nor later; what the command makes is."""
    seen: set[bool] = set()

    def note(name: str) -> ModuleType:
        seen.add(gc.isenabled())
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", note)
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert "--node-name" in capsys.readouterr().out
    assert (seen, gc.isenabled()) == ({False}, True)
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


@pytest.mark.parametrize(
    ("program", "words", "package", "extra"),
    [
        ("agent.cli.main", ["serve", "--node-name=n"], "grpclib", "node"),
        ("tools.cli.kubectl_npu", [], "rich", "cli"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    program: str, words: list[str], package: str, extra: str
) -> None:
    """With the extra that has it: a node and an operator's machine have different ones."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; "
        f"from trio_npu_dra.{program} import main; sys.exit(main({words}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    said = f": the Python package {package} is missing: install trio-npu-dra[{extra}]\n"
    assert done.returncode == 1
    assert done.stderr.splitlines(keepends=True)[0].endswith(said)


def test_simulate_prints_the_flags_that_inspect_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`inspect` understands the flags that `simulate` prints."""
    assert main(["simulate", "910b4-8", "--state", str(tmp_path)]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("flags")]

    shown = npu_dra("inspect", *line.split()[1:], "--node-name", "master")

    assert shown.returncode == 0
    rows = shown.stdout.splitlines()
    head = "DEVICE CHIP MEMORY AI CORES NUMA GROUP PCI ADDRESS TAINTS HEALTH"
    assert rows[0].split() == head.split()
    first = "npu-0 910B4 32Gi 20 6 ring-0 0000:c1:00.0 192.168.100.101/24 - Healthy"
    assert rows[1].split() == first.split()
    assert len(rows) == 9


def test_inspect_shows_the_taints_of_a_unhealthy_npu(
    board: SimulatedBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output has the taints that the scheduler would see, beside the fault itself."""
    with board.control() as control:
        control.add_fault(3, 0x80E18005, Severity.CRITICAL)
        try:
            assert main(["inspect", *board.flags(), "--node-name=master"]) == 0
        finally:
            control.restore(3)
    rows = capsys.readouterr().out.splitlines()

    cells = rows[4].split()
    assert (cells[0], cells[8:10]) == ("npu-3", ["fault=RestartNPU:NoExecute", "Unhealthy"])
    assert "80E18005" in rows[4]


def test_inspect_shows_modules_and_what_is_not_offered() -> None:
    """The reason stands below the table."""
    board = a3(die(0), die(1), die(2), die(3, vnpus=[148]))

    rows = _table(board, Settings(node_name="master"))

    assert rows[1].split()[:2] == ["module-0", "Ascend910"]
    assert rows[2].startswith("npu-2 is not offered: the dies of a card go together")
    assert rows[3:] == (
        "npu-3 is not offered: it is split into vNPUs 148",
        "npu-3 vNPU 148, cut by hand",
    )


def test_inspect_leaves_out_what_is_for_a_resource() -> None:
    """A module goes with its die."""
    settings = Settings(node_name="master", device_plugin="2")

    rows = _table(a3(die(0), die(1), die(2), die(3)), settings)

    assert rows[1].split()[0] == "module-0"
    assert rows[2:] == ("npu-2 is for huawei.com/Ascend910",)

    parts = Settings(node_name="master", device_plugin="Ascend910B=a/b", device_plugin_shares=4)
    shared, cut_by_hand = npu(0), split(npu(1), partition(116), partition(117))
    rows = _table(Board(chips=(shared, cut_by_hand)), parts)
    assert [row for row in rows if " is for " in row] == [
        "npu-0 is for a/b, in 4 shares",
        "npu-1-vnpu-116 is for a/b-6c.1cpu.16g",
        "npu-1-vnpu-117 is for a/b-6c.1cpu.16g",
    ]

    cut = Settings(node_name="master", device_plugin="0", partitioning="dynamic")
    rows = _table(a3(die(0), die(1), policy=MultiDiePolicy.INDEPENDENT), cut)
    assert [row for row in rows if "npu-0" in row] == ["npu-0 is for huawei.com/Ascend910"]
    assert rows[-1].startswith("npu-1 is not cut: "), "why it is not cut is said of others"


def test_inspect_prints_slices_that_can_be_read_back(
    board: SimulatedBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML and JSON say the same."""
    words = ["inspect", *board.flags(), "--node-name=master"]
    assert main([*words, "-o", "yaml"]) == 0
    as_yaml = list(yaml.safe_load_all(capsys.readouterr().out))
    assert main([*words, "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)["items"]

    assert as_yaml == as_json
    (slice_,) = as_yaml
    assert slice_["kind"] == "ResourceSlice"
    assert slice_["metadata"] == {"generateName": "master-npu.huawei.com-00000-"}
    assert slice_["spec"]["pool"] == {"name": "master", "generation": 1, "resourceSliceCount": 1}
    assert len(slice_["spec"]["devices"]) == 8


def slice_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """The one slice that `inspect` prints."""
    assert main(["inspect", *words, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    return found


def test_slices_are_named_after_the_node(
    bare: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By flag, variable, or as the kubelet names it without either: like the host."""
    monkeypatch.setattr(platform, "node", lambda: "Host-1")
    assert slice_of(bare, capsys)["spec"]["nodeName"] == "host-1"
    monkeypatch.setenv("NPU_DRA_NODE_NAME", "worker-7")
    assert slice_of(bare, capsys)["spec"]["nodeName"] == "worker-7"
    assert slice_of([*bare, "--node-name=n"], capsys)["spec"]["nodeName"] == "n"


def test_a_node_needs_a_name_only_where_it_is_shown(
    bare: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here the host has one that no Node can have."""
    monkeypatch.setattr(platform, "node", lambda: "my_host")
    assert main(["inspect", *bare]) == 0
    assert main(["inspect", *bare, "-o", "yaml"]) == 2

    said = capsys.readouterr().err
    assert said == (
        "npu-dra inspect: --node-name is missing, and no Node can have the name of this host, "
        "my_host: set it or NPU_DRA_NODE_NAME\n"
    )


@pytest.fixture(scope="module")
def demo() -> str:
    """What the demo prints."""
    shown = npu_dra("demo")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


def test_the_demo_shows_a_claim_from_slice_to_end(demo: str) -> None:
    """The demo needs no root, no cluster and no network."""
    for text in ("kind: ResourceSlice", "chipName", "cdiVersion: 0.5.0", "/dev/davinci0"):
        assert text in demo
    assert "CDI files left: 0" in demo
    assert demo.rstrip().endswith("=== done")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`npu-dra --help` is where people start."""
    with pytest.raises(SystemExit):
        main(["--help"])

    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
