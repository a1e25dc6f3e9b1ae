"""Partitions of chips and shares, through the binding: what it makes of the library's answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trio_npu_dra.ascend.dcmi import _signatures as c
from trio_npu_dra.ascend.dcmi._answers import resources
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, IdUnknown, NotPermitted, NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipRef, Resources, VDevice, VnpuMode
from trio_npu_dra.lab.simulator import BoardControl, create_board, load_profile

CHIP = ChipRef(3, 0)
QUARTER = "vir05_1c_8g"
OF_A_QUARTER = Resources(
    ai_cores=5, ai_cpus=1, memory_mib=8192, vpc=2, venc=0, vdec=0, jpegd=6, jpege=1, pngd=0
)

LoadBoard = Callable[[str], tuple[Dcmi, BoardControl]]


@pytest.fixture
def load_board(tmp_path: Path, simulator: Path) -> LoadBoard:
    """The library of another board, initialised, and what changes the board."""

    def load(profile: str) -> tuple[Dcmi, BoardControl]:
        board = create_board(load_profile(profile), tmp_path / profile, prebuilt=simulator)
        dcmi = Dcmi.load(board.root)
        dcmi.init()
        return dcmi, board.control()

    return load


@pytest.fixture
def ready(dcmi: Dcmi) -> Dcmi:
    """The library of eight 910B4, initialised."""
    dcmi.init()
    return dcmi


def test_a_partition_is_made_described_and_destroyed(ready: Dcmi, control: BoardControl) -> None:
    """Its id is that of its node; a container that uses it keeps it from being removed."""
    made = ready.create_vdevice(CHIP, QUARTER)
    assert ready.vnpus(CHIP) == (made,) == (148,)
    assert ready.vdevice(CHIP, made) == VDevice(
        id=148, template=QUARTER, in_use=False, resources=OF_A_QUARTER
    )
    total = ready.total_resources(CHIP)
    assert (total.ai_cores, total.ai_cpus, total.memory_mib, total.jpegd) == (20, 7, 32768, 24)
    control.use_vnpu(3, made)
    assert ready.vdevice(CHIP, made).in_use
    with pytest.raises(Busy, match="a container uses vNPU 148"):
        ready.destroy_vdevice(CHIP, made)
    control.use_vnpu(3, made, in_use=False)
    ready.destroy_vdevice(CHIP, made)
    assert ready.vnpus(CHIP) == ()
    for call in (ready.destroy_vdevice, ready.vdevice):
        with pytest.raises(IdUnknown):
            call(CHIP, made)


def test_what_cannot_be_made_is_refused(ready: Dcmi, control: BoardControl) -> None:
    """A taken id, another board's template, too much, a chip in use, a caller without rights."""
    assert ready.create_vdevice(CHIP, QUARTER, 163) == 163
    with pytest.raises(DcmiError, match="-8001"):
        ready.create_vdevice(CHIP, QUARTER, 163)
    ready.destroy_vdevice(CHIP, 163)
    with pytest.raises(DcmiError, match="-8001"):
        ready.create_vdevice(CHIP, "vir12_3c_32g")
    ready.create_vdevice(CHIP, "vir10_4c_16g_m")
    with pytest.raises(DcmiError, match="-8001"):
        ready.create_vdevice(CHIP, QUARTER)  # the first has all media engines
    control.set_processes(4, [(1, 2)])
    with pytest.raises(Busy):
        ready.create_vdevice(ChipRef(4, 0), QUARTER)
    control.set_privileged(privileged=False)
    for change in (
        lambda: ready.create_vdevice(ChipRef(5, 0), QUARTER),
        lambda: ready.destroy_vdevice(CHIP, 148),
        lambda: ready.set_device_share(CHIP, enabled=True),
    ):
        with pytest.raises(NotPermitted):
            change()


def test_a_node_for_virtual_machines_says_so(ready: Dcmi, control: BoardControl) -> None:
    """Its vNPUs have no device nodes."""
    assert ready.vnpu_mode() is VnpuMode.CONTAINER
    control.set_vnpu_mode(for_vms=True)
    assert ready.vnpu_mode() is VnpuMode.VIRTUAL_MACHINE


def test_a_share_flag_changes_while_the_chip_is_free(ready: Dcmi, control: BoardControl) -> None:
    """In both directions; a reboot resets it."""
    ready.set_device_share(CHIP, enabled=True)
    assert ready.device_share(CHIP)
    control.set_processes(3, [(1, 2)])
    with pytest.raises(Busy):
        ready.set_device_share(CHIP, enabled=False)
    control.reboot()
    assert not ready.device_share(CHIP)


def test_what_a_910_does_not_report_is_none(load_board: LoadBoard) -> None:
    """It reports AI cores alone; the queries fill the rest with ones."""
    dcmi, _ = load_board("910a-8")
    chip = ChipRef(0, 0)
    assert dcmi.create_vdevice(chip, "vir02") == 100
    told = dcmi.vdevice(chip, 100).resources
    assert (told.ai_cores, told.ai_cpus, told.memory_mib, told.pngd) == (2, None, None, None)


def test_the_second_generation_lacks_many_calls(load_board: LoadBoard) -> None:
    """The library is not asked: no version of it has them. It shares chips."""
    dcmi, control = load_board("950-pod-8")
    chip = ChipRef(2)
    with control:
        for lacking in (
            lambda: dcmi.create_vdevice(chip, "vir12_3c_32g"),
            lambda: dcmi.destroy_vdevice(chip, 100),
            dcmi.vnpu_mode,
            dcmi.multi_die_policy,
            lambda: dcmi.product_type(chip),
            lambda: dcmi.card_power(chip),
            lambda: dcmi.ddr(chip),
        ):
            with pytest.raises(NotSupported, match="of this generation"):
                lacking()
        dcmi.set_device_share(chip, enabled=True)
        assert dcmi.device_share(chip)


@pytest.mark.parametrize("number", [-1.0, math.nan, math.inf, 2.0**32])
def test_what_cannot_be_counted_is_not_known(number: float) -> None:
    """The library fills what it does not know with ones, or says -1."""
    computing, media = c.dcmi_computing_resource(), c.dcmi_media_resource()
    computing.aic = media.pngd = number
    computing.memory_size, computing.device_aicpu = 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF
    known = resources(computing, media)
    assert known == replace(Resources(), vpc=0, venc=0, vdec=0, jpegd=0, jpege=0)


def test_half_engines_are_counted() -> None:
    """One and a half PNG decoders are three halves; of other parts nothing is left."""
    computing, media = c.dcmi_computing_resource(), c.dcmi_media_resource()
    computing.aic, media.pngd, media.vpc = 7.9, 1.5, 0.5
    known = resources(computing, media)
    assert (known.ai_cores, known.pngd, known.vpc) == (7, 3, 0)
