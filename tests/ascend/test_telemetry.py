"""What a chip measures, in base units; a missing value is None."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS
from trio_npu_dra.ascend import telemetry
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import DcmiCall, EccCounts
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.telemetry import Telemetry, TelemetryReader
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, load_profile

AI_CORES, AI_CPUS, HBM_BANDWIDTH, VECTOR_CORES = 2, 3, 10, 12
NOT_SUPPORT, NOT_READY, INNER = -8255, -8012, -8005
EVERY = ("temperature", "power_info", "utilization_rate", "hbm_info", "ecc_info", "info")
"""What a 910B is asked, without the parts that all names of functions have in common."""


class Calls:
    """The functions of the library that were called, since somebody last took their counts."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def note(self, call: DcmiCall) -> None:
        """Add one."""
        self.made.append(call.function.partition("_get_")[2].removeprefix("device_"))

    def take(self) -> Counter[str]:
        """How often each was called."""
        made, self.made = self.made, []
        return Counter(made)


@pytest.fixture
def calls() -> Calls:
    """What is asked of the library."""
    return Calls()


@pytest.fixture
def dcmi(simulated: SimulatedBoard, calls: Calls) -> Dcmi:
    """The board's library."""
    return Dcmi.load(simulated.root, calls.note)


@pytest.fixture
def npu(board: Board, calls: Calls) -> Chip:
    """The first NPU."""
    calls.take()
    return board.chips[0]


@pytest.fixture
def reader(worker: DcmiWorker, dcmi: Dcmi) -> TelemetryReader:
    """Who asks for it."""
    return TelemetryReader(worker, dcmi)


@pytest.mark.parametrize("profile", [load_profile("910b4-8"), load_profile("300i-duo-2")])
async def test_values_come_in_base_units(
    reader: TelemetryReader, control: BoardControl, npu: Chip
) -> None:
    """Watts and not tenths, a share and not percent, bytes and not MiB; HBM or DDR."""
    control.set_temperature(npu.physical_id, 51)
    control.set_power(npu.physical_id, 93.4)
    control.set_utilization(npu.physical_id, AI_CORES, 75)
    control.set_utilization(npu.physical_id, AI_CPUS, 30)
    control.set_utilization(npu.physical_id, VECTOR_CORES, 100)

    measured = await reader.read(npu)

    assert measured.temperature_celsius == 51
    assert measured.power_watts == pytest.approx(93.4)
    assert measured.ai_core_ratio == 0.75
    assert measured.ai_cpu_ratio == 0.3
    assert measured.vector_core_ratio == 1
    assert measured.memory_used_bytes is not None
    assert npu.memory_bytes is not None
    assert 0 < measured.memory_used_bytes < npu.memory_bytes
    assert measured.memory_used_bytes % 2**20 == 0


@pytest.mark.parametrize("profile", [load_profile("910b4-8"), load_profile("950-pod-8")])
async def test_hbm_has_heat_load_and_errors(
    reader: TelemetryReader, control: BoardControl, npu: Chip
) -> None:
    """Single-bit errors are not double-bit errors, and pages are isolated for these."""
    control.set_temperature(npu.physical_id, 64)
    control.set_utilization(npu.physical_id, HBM_BANDWIDTH, 40)
    control.set_ecc_errors(npu.physical_id, single=17, double=3)

    measured = await reader.read(npu)

    assert measured.hbm_temperature_celsius == 64
    assert measured.hbm_bandwidth_ratio == 0.4
    assert measured.hbm_errors == EccCounts(
        single_bit=17, double_bit=3, single_bit_ever=17, double_bit_ever=3, isolated_pages=3
    )


async def test_one_odd_count_is_no_new_errors(
    reader: TelemetryReader, control: BoardControl, npu: Chip
) -> None:
    """Neither a dip, nor a peak; one that stays counts, and one that was not written is none."""
    shown = []
    for single in (7, 7, 0, 7, 9999, 7, 8, 8, 0xFFFF_FFFF, 8, 0, 0):
        control.set_ecc_errors(npu.physical_id, single=single, double=1)
        errors = (await reader.read(npu)).hbm_errors
        assert errors is not None
        shown.append(errors.single_bit)
        assert errors.double_bit == 1
    assert shown == [7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 0, 0]


@pytest.mark.parametrize("profile", [load_profile("300i-duo-2"), load_profile("910a-8")])
async def test_what_a_family_has_not_is_none(reader: TelemetryReader, npu: Chip) -> None:
    """DDR is no HBM; HCCS tells its state on 910B and A3 only."""
    measured = await reader.read(npu)
    has_hbm = npu.family == "Ascend910"
    assert (measured.hbm_errors is not None) == has_hbm
    assert (measured.hbm_temperature_celsius is not None) == has_hbm
    assert measured.hccs_up is None


@pytest.mark.parametrize("profile", [load_profile("910b4-8"), load_profile("a3-16")])
async def test_hccs_is_up_or_not(
    reader: TelemetryReader, control: BoardControl, npu: Chip, board: Board
) -> None:
    """Each chip has its own state; links that are only being set up are not up."""
    control.set_hccs_status(npu.physical_id, 2)
    assert (await reader.read(npu)).hccs_up is False
    assert (await reader.read(board.chips[1])).hccs_up is True


@pytest.mark.parametrize("code", [NOT_SUPPORT, NOT_READY, INNER])
async def test_a_call_that_fails_gives_no_value(
    reader: TelemetryReader, control: BoardControl, npu: Chip, code: int
) -> None:
    """None, and not 0, whatever the error is; each function has its own values."""
    whole = await reader.read(npu)
    assert None not in (whole.temperature_celsius, whole.power_watts, whole.ai_core_ratio)
    for function in EVERY:
        control.set_return_code(f"dcmi_get_device_{function}", code)
    assert await reader.read(npu) == Telemetry()
    control.release("dcmi_get_device_temperature")
    assert await reader.read(npu) == Telemetry(temperature_celsius=whole.temperature_celsius)


async def test_a_missing_value_is_none(
    reader: TelemetryReader, control: BoardControl, npu: Chip
) -> None:
    """A sensor's "no value", and a share that cannot be."""
    control.set_temperature(npu.physical_id, 0x7FFF)
    control.set_power(npu.physical_id, 0x7FFD / 10)
    for kind in (AI_CORES, AI_CPUS, VECTOR_CORES, HBM_BANDWIDTH):
        control.set_utilization(npu.physical_id, kind, 101)
    measured = await reader.read(npu)
    assert measured == Telemetry(
        memory_used_bytes=measured.memory_used_bytes,
        hbm_errors=measured.hbm_errors,
        hccs_up=measured.hccs_up,
    )
    assert None not in (measured.memory_used_bytes, measured.hbm_errors, measured.hccs_up)


@pytest.mark.parametrize("profile", [load_profile("300i-duo-2")])
async def test_the_power_of_a_310p_is_that_of_its_card(
    reader: TelemetryReader, control: BoardControl, npu: Chip
) -> None:
    """A sensor's "no value" is none there too."""
    control.set_power(npu.physical_id + 1, 71.5)  # the other chip of the card
    assert (await reader.read(npu)).power_watts == pytest.approx(71.5)
    control.set_power(npu.physical_id, 0x7FFD / 10)
    assert (await reader.read(npu)).power_watts is None


@pytest.mark.parametrize(
    ("profile", "first", "next_"),
    [
        # Temperature, power, AI cores, AI CPUs, vector cores, memory, errors, HCCS.
        (load_profile("910b4-8"), 8, 8),
        (load_profile("a3-16"), 8, 8),
        (load_profile("300i-a2-2"), 7, 7),  # without HCCS
        (load_profile("950-pod-8"), 7, 7),
        (load_profile("910a-8"), 7, 6),  # without vector cores
        (load_profile("300i-duo-2"), 8, 6),  # power by its card, no HBM
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
async def test_what_a_scrape_costs(
    reader: TelemetryReader, npu: Chip, calls: Calls, first: int, next_: int
) -> None:
    """So many calls for each NPU (docs/metrics.md), none of which it does not support."""
    await reader.read(npu)
    assert calls.take().total() == first
    for _ in range(2):
        await reader.read(npu)
        assert calls.take().total() == next_


async def test_what_is_not_supported_is_tried_again_later(
    reader: TelemetryReader,
    control: BoardControl,
    board: Board,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chip may support it once it is not split any more; other chips are asked meanwhile."""
    npu, other = board.chips[:2]
    function = "dcmi_get_device_ecc_info"
    control.set_return_code(function, NOT_SUPPORT, npu.physical_id)
    await reader.read(npu)
    control.release(function, npu.physical_id)
    calls.take()
    assert (await reader.read(npu)).hbm_errors is None
    assert calls.take()["ecc_info"] == 0
    assert (await reader.read(other)).hbm_errors is not None
    now = time.monotonic() + telemetry.UNSUPPORTED_SECONDS
    monkeypatch.setattr(telemetry, "monotonic", lambda: now)
    assert (await reader.read(npu)).hbm_errors is not None


async def test_not_supported_twice_in_a_row_is_believed(
    reader: TelemetryReader, control: BoardControl, npu: Chip, calls: Calls
) -> None:
    """Of what has had a value: libraries say it by mistake, too, and of a chip that is split."""
    await reader.read(npu)
    control.set_return_code("dcmi_get_device_utilization_rate", NOT_SUPPORT)
    await reader.read(npu)
    calls.take()
    await reader.read(npu)
    assert calls.take()["utilization_rate"] == 3
    await reader.read(npu)
    assert calls.take()["utilization_rate"] == 0


async def test_a_slow_chip_is_left_alone(
    reader: TelemetryReader, npu: Chip, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once half a second has passed, what is not read yet waits for the next scrape."""
    clock = itertools.count(step=0.2)
    monkeypatch.setattr(telemetry, "monotonic", lambda: next(clock))
    measured = await reader.read(npu)
    assert calls.take() == {"temperature": 1, "power_info": 1}
    assert measured == Telemetry(
        temperature_celsius=measured.temperature_celsius, power_watts=measured.power_watts
    )
    assert None not in (measured.temperature_celsius, measured.power_watts)


async def test_a_chip_that_hangs_is_left_alone(
    reader: TelemetryReader, control: BoardControl, npu: Chip, worker: DcmiWorker, calls: Calls
) -> None:
    """After a second; what it answered before counts. The next time it is not asked at all."""
    function = "dcmi_get_device_power_info"
    control.hang(function, npu.physical_id)
    measured = await reader.read(npu)
    assert measured == Telemetry(temperature_celsius=measured.temperature_celsius)
    assert measured.temperature_celsius is not None
    assert worker.written_off == 1
    calls.take()
    assert await reader.read(npu) == Telemetry()
    assert not calls.take()
    control.release(function, npu.physical_id)


async def test_a_look_at_health_waits_for_one_call(
    reader: TelemetryReader, npu: Chip, worker: DcmiWorker, dcmi: Dcmi, calls: Calls
) -> None:
    """And not for all calls of a scrape."""
    gate = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(worker.call, gate.wait, HANG_SECONDS))
        await wait_all_tasks_blocked()
        nursery.start_soon(reader.read, npu)
        await wait_all_tasks_blocked()
        nursery.start_soon(worker.call, dcmi.health, npu.ref)
        await wait_all_tasks_blocked()
        gate.set()
    assert calls.made[:3] == ["temperature", "health", "power_info"]
    assert len(calls.made) == 9
