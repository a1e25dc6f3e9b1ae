"""How people see the connections of a node's NPUs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dev.rig.boards import a3, die
from dev.site.markdown import with_output
from dev.site.topology_pictures import PAGE, SCENES, Scene, make
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind
from trio_npu_dra.ascend.dcmi.types import Link
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip, ChipFamily
from trio_npu_dra.tools.cli.drawing import draw
from trio_npu_dra.tools.cli.topology import Topology, link_between, matrix, wire

SVG = "{http://www.w3.org/2000/svg}"


def seen(board: Board, *holds: Hold, **cpus: str) -> Topology:
    """A board with the nearest CPUs of chips, by their names without the dash."""
    near = {name.replace("npu", "npu-"): numbers for name, numbers in cpus.items()}
    return Topology(node="node-1", board=board, cpus=near, holds=holds)


def hold(name: str, *numbers: int, observer: bool = False) -> Hold:
    """A claim that has those chips."""
    return Hold(
        holder=Holder(kind=HolderKind.CLAIM, namespace="default", name=name, uid=name),
        device="any",
        nodes=frozenset(f"/dev/davinci{number}" for number in numbers),
        observer=observer,
    )


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene.profile))
def test_the_committed_pictures_are_what_the_command_makes(scene: Scene, tmp_path: Path) -> None:
    """Matrix and drawing of a simulated board; `just pictures` makes them anew."""
    printed, drawing = make(scene, tmp_path)

    assert drawing == scene.file.read_text(encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    assert printed in page
    assert with_output(page, f"matrix of {scene.profile}", printed) == page


# --- the matrix ----------------------------------------------------------------------------------


def test_every_link_has_a_code_and_the_legend_only_those_that_appear() -> None:
    """The codes of npu-smi, the nearest first; what the library cannot tell is NA."""
    dies = [replace(die(number), topology_group="ring-0") for number in (0, 1, 2)]
    alone = replace(die(3), family=ChipFamily.ASCEND_910B)
    links = {(0, 1): Link.SIO, (0, 2): Link.HCCS_SWITCHED, (0, 3): Link.SYS, (1, 3): Link.UNKNOWN}
    board = replace(a3(*dies, alone), links=links)

    lines = matrix(seen(board, npu0="0-23,48-71"))

    assert [line.split() for line in lines[:5]] == [
        ["npu-0", "npu-1", "npu-2", "npu-3", "GROUP", "NUMA", "CPU", "AFFINITY"],
        ["npu-0", "X", "SIO", "HCCS_SW", "SYS", "ring-0", "-", "0-23,48-71"],
        ["npu-1", "SIO", "X", "RING", "NA", "ring-0", "-", "-"],
        ["npu-2", "HCCS_SW", "RING", "X", "NA", "ring-0", "-", "-"],
        ["npu-3", "SYS", "NA", "NA", "X", "-", "-", "-"],
    ]
    legend = [line.split()[0] for line in lines[6:]]
    assert legend == ["X", "SIO", "HCCS_SW", "RING", "SYS", "NA"]


@pytest.mark.parametrize("link", set(Link) - {Link.UNKNOWN, Link.SELF})
def test_no_link_is_without_a_code(link: Link) -> None:
    """On A3, where each number means what it says."""
    board = replace(a3(die(0), die(1)), links={(0, 1): link})
    code = matrix(seen(board))[1].split()[2]
    assert code == {"HCCS_SWITCHED": "HCCS_SW"}.get(link.name, link.name)


def test_a_super_pod_and_silent_chips_are_said_below() -> None:
    """Once for all NPUs."""
    dies = [replace(die(n), super_pod_id=7, super_pod_server_index=3) for n in (0, 1)]
    board = replace(a3(*dies), unanswered=("card 4: no answer",))
    assert matrix(seen(board))[-2:] == ("super pod 7, server 3", "card 4: no answer")


def test_a_node_without_npus_says_so() -> None:
    """In the matrix, for programs and in the drawing."""
    assert matrix(seen(EMPTY_BOARD)) == ("no NPU found",)
    assert wire(seen(EMPTY_BOARD)) == {"npus": []}
    assert parsed(draw(seen(EMPTY_BOARD))).findtext(f"{SVG}desc") == "No NPU was found."


# --- for programs --------------------------------------------------------------------------------


def test_programs_get_what_is_known() -> None:
    """Unknown facts are absent; unknown holders are not the same as none."""
    board = replace(a3(die(0), replace(die(1), numa_node=2)), links={(0, 1): Link.SIO})
    first, second = wire(seen(board, hold("train", 1), hold("monitor", 0, observer=True)))["npus"]

    assert first == {
        "name": "npu-0",
        "model": "Ascend910A3",
        "chipName": "Ascend910",
        "health": "Healthy",
        "heldBy": [],
        "links": {"npu-1": "SIO"},
    }
    assert (second["heldBy"], second["numaNode"]) == (["default/train"], 2)
    unknown = Topology(node=None, board=board, cpus={}, holds=None)
    assert "heldBy" not in wire(unknown)["npus"][0]


def test_json_and_yaml_say_the_same(bare: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """On a node without NPUs, where it takes no library."""
    told = []
    for form in ("json", "yaml"):
        assert main(["inspect", "--topology", *bare, "-o", form]) == 0
        told.append(yaml.safe_load(capsys.readouterr().out))  # JSON is YAML too
    assert told[0] == told[1]


# --- the drawing ---------------------------------------------------------------------------------


def parsed(drawing: str) -> ET.Element:
    """The root of a drawing."""
    return ET.fromstring(drawing)  # noqa: S314 - our own text


def texts(drawing: str) -> list[str]:
    """All text that is drawn."""
    return [text.text or "" for text in parsed(drawing).iter(f"{SVG}text")]


def test_what_is_drawn_is_in_words_too() -> None:
    """For those who cannot see it: title and description name the node and each NPU."""
    board = a3(replace(die(0), pcie_root="pci0000:c0", numa_node=6), die(1))
    root = parsed(draw(seen(board, hold("train", 0))))

    assert root.get("role") == "img"
    ids = {one.get("id") for one in root if one.get("id")}
    assert ids == set(str(root.get("aria-labelledby")).split())
    assert root.findtext(f"{SVG}title") == "The NPUs of node-1"
    assert root.findtext(f"{SVG}desc") == (
        "NUMA node 6, pci0000:c0: npu-0 (Ascend910, Healthy, held by default/train). "
        "NUMA node not known, PCIe root not known: npu-1 (Ascend910, Healthy)."
    )


def test_names_cannot_break_the_drawing() -> None:
    """Whatever the library says of a chip; long names are cut and stand in full in the tooltip."""
    strange = replace(die(0), chip_name='<910 & "B">\x00')
    long = hold("a-claim-with-a-very-long-name", 0)
    drawing = draw(seen(a3(strange), long))

    assert '<910 & "B">\ufffd' in texts(drawing)
    assert "default/a-claim-wit…" in texts(drawing)
    title = parsed(drawing).findtext(f"{SVG}g/{SVG}title")
    assert "held by default/a-claim-with-a-very-long-name" in str(title)


def test_unknown_holders_are_not_nobody() -> None:
    """The drawing says that it does not know."""
    unknown = Topology(node=None, board=a3(die(0)), cpus={}, holds=None)
    drawn = texts(draw(unknown))
    assert drawn[0] == "The NPUs of this node"
    assert any("the holders of the NPUs are unknown" in words for words in drawn)


def test_a_file_that_cannot_be_written_is_one_clear_line(
    bare: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the flag and the file."""
    file = tmp_path / "none/a.svg"
    assert main(["inspect", *bare, f"--svg={file}"]) == 2
    said = capsys.readouterr().err
    assert said == f"npu-dra inspect: --svg={file}: cannot write it: No such file or directory\n"


def test_the_drawing_can_be_all_that_is_printed(
    bare: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the driver's pod no file can be written."""
    assert main(["inspect", "--topology", *bare, "--svg=-"]) == 0
    assert "no NPU found" in texts(capsys.readouterr().out)


def test_the_drawing_comes_beside_what_is_printed(
    bare: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --topology that is what the node would publish."""
    file = tmp_path / "a.svg"
    assert main(["inspect", *bare, "--node-name=n", f"--svg={file}", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "List"
    assert texts(file.read_text(encoding="utf-8"))[0] == "The NPUs of n"


def two_chips(family: ChipFamily, link: Link) -> tuple[Board, Chip, Chip]:
    """A board of two chips with that link."""
    one, other = (replace(die(number), family=family) for number in (0, 1))
    return Board(chips=(one, other), links={(0, 1): link}), one, other


def test_the_library_says_how_two_chips_are_connected() -> None:
    """In either direction; a chip and itself too."""
    board, one, other = two_chips(ChipFamily.ASCEND_910B, Link.PIX)
    assert link_between(board, one, other) is link_between(board, other, one) is Link.PIX
    assert link_between(board, one, one) is Link.SELF


def test_a_link_that_is_not_known_is_none() -> None:
    """Whether the library says so, by 9 or by the 6 of an older one, or was not asked."""
    assert link_between(*two_chips(ChipFamily.ASCEND_910B, Link.UNKNOWN)) is None
    assert link_between(*two_chips(ChipFamily.ASCEND_910B, Link.SIO)) is None
    assert link_between(*two_chips(ChipFamily.ASCEND_910_A3, Link.SIO)) is Link.SIO
    _, one, other = two_chips(ChipFamily.ASCEND_910, Link.UNKNOWN)
    assert link_between(Board(chips=(one, other)), one, other) is None
