"""What a chip measures, in base units; a missing value is None."""

from __future__ import annotations

import pytest

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.telemetry import Telemetry, read_telemetry
from trio_npu_dra.lab.simulator import BoardControl, load_profile

AI_CORES = 2
NOT_SUPPORT = -8255


@pytest.fixture
def npu(board: Board) -> Chip:
    """The first NPU."""
    return board.chips[0]


@pytest.mark.parametrize("profile", [load_profile("910b4-8"), load_profile("300i-duo-2")])
async def test_values_come_in_base_units(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, npu: Chip
) -> None:
    """Watts and not tenths, a share and not percent, bytes and not MiB; HBM or DDR."""
    control.set_temperature(npu.physical_id, 51)
    control.set_power(npu.physical_id, 93.4)
    control.set_utilization(npu.physical_id, AI_CORES, 75)

    measured = await read_telemetry(worker, dcmi, npu)

    assert measured.temperature_celsius == 51
    assert measured.power_watts == pytest.approx(93.4)
    assert measured.ai_core_ratio == 0.75
    assert measured.memory_used_bytes is not None
    assert npu.memory_bytes is not None
    assert 0 < measured.memory_used_bytes < npu.memory_bytes
    assert measured.memory_used_bytes % 2**20 == 0


async def test_a_missing_value_is_none(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, npu: Chip
) -> None:
    """A sensor's "no value" is none."""
    control.set_temperature(npu.physical_id, 0x7FFF)
    for function in (
        "dcmi_get_device_power_info",
        "dcmi_get_device_utilization_rate",
        "dcmi_get_device_hbm_info",
    ):
        control.set_return_code(function, NOT_SUPPORT)

    assert await read_telemetry(worker, dcmi, npu) == Telemetry()


@pytest.mark.parametrize("profile", [load_profile("300i-duo-2")])
async def test_the_power_of_a_310p_is_that_of_its_card(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, npu: Chip
) -> None:
    """A sensor's "no value" is none there too."""
    control.set_power(npu.physical_id + 1, 71.5)  # the other chip of the card
    assert (await read_telemetry(worker, dcmi, npu)).power_watts == pytest.approx(71.5)
    control.set_power(npu.physical_id, 0x7FFD / 10)
    assert (await read_telemetry(worker, dcmi, npu)).power_watts is None


async def test_a_chip_that_hangs_is_busy(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, npu: Chip
) -> None:
    """After a second; the next time immediately."""
    function = "dcmi_get_device_temperature"
    control.hang(function, npu.physical_id)
    for _ in range(2):
        with pytest.raises(Busy):
            await read_telemetry(worker, dcmi, npu)
    control.release(function, npu.physical_id)
