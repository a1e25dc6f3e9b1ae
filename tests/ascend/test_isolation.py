"""Each call to the library says what hangs if it hangs, and how long it may take.

The worker asks nothing more of a chip with a call out. A call that names no chip would count
against the driver as a whole, and the next call into the hung chip would cost another thread.
"""

from __future__ import annotations

from functools import partial

import pytest

from dev.rig.looking import SERVER, Relay, changed
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.dcmi.worker import DEADLINE_SECONDS, DcmiWorker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.health import DEADLINE_SECONDS as HEALTH_SECONDS
from trio_npu_dra.ascend.health import NETWORK_DEADLINE_SECONDS, read_chip, read_network
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import init
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.ascend.telemetry import DEADLINE_SECONDS as TELEMETRY_SECONDS
from trio_npu_dra.ascend.telemetry import TelemetryReader
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.simulator import BoardControl, load_profile

PAIR = changed(SERVER, 2)
A3 = load_profile("a3-16")
FIRST, SECOND = ChipRef(0, 0), ChipRef(1, 0)
TELEMETRY = (
    *("temperature", "power", "ai_core_utilization", "read_memory", "hbm_errors", "is_hccs_up"),
    *("ai_cpu_utilization", "vector_core_utilization"),
)
"""Each is a call of its own, so whoever looks at a chip's health waits for one of them."""


@pytest.mark.parametrize("profile", [PAIR])
async def test_each_call_of_a_listing_names_its_chip(relay: Relay, dcmi: Dcmi, host: Host) -> None:
    """Or its card, or its port; only what asks for the node does not, and `init` runs alone."""
    await init(relay, dcmi, host, EMPTY_BOARD)
    await discover(relay, dcmi, host)
    assert sorted(relay.devices, key=str) == sorted(
        [
            *((name, None) for name in ("init", "card_list", "driver_version", "vnpu_mode")),
            *(("units", card) for card in (0, 1)),
            *((name, chip) for name in ("identify", "describe") for chip in (FIRST, SECOND)),
            *(("_network", ("network", chip)) for chip in (FIRST, SECOND)),
            ("read_links", FIRST),
        ],
        key=str,
    )
    assert relay.alone == ["init"]
    assert (relay.deadlines["init"] or 0.0) > DEADLINE_SECONDS  # it runs programs


@pytest.mark.parametrize("profile", [PAIR])
async def test_each_look_at_a_chip_names_it_and_has_a_deadline_of_its_own(
    relay: Relay, dcmi: Dcmi, board: Board
) -> None:
    """A RoCE port hangs apart from its chip; who asks for processes has the time of all."""
    npu = board.chips[1]
    relay.devices.clear()
    await read_chip(relay, dcmi, SECOND)
    await read_network(relay, dcmi, SECOND)
    await TelemetryReader(relay, dcmi).read(npu)
    await is_any_occupied(relay, dcmi, Observable(board), [npu.device_node])
    assert relay.devices == [
        ("read_health", SECOND),
        ("network_health", ("network", SECOND)),
        *((name, SECOND) for name in TELEMETRY),
        ("processes", SECOND),
    ]
    assert [relay.deadlines[name] for name, _ in relay.devices] == [
        HEALTH_SECONDS,
        NETWORK_DEADLINE_SECONDS,
        *[TELEMETRY_SECONDS] * len(TELEMETRY),
        None,
    ]


@pytest.mark.parametrize("profile", [A3])
async def test_calls_that_hang_cost_nobody_else(
    worker: DcmiWorker, dcmi: Dcmi, board: Board, control: BoardControl
) -> None:
    """Two dead cards of eight, and each RoCE port of the node."""
    dead, ports = board.chips[2:6], "dcmi_get_device_network_health"
    control.hang(ports)
    for chip in dead:
        control.hang(device=chip.physical_id)
    hung = partial(worker.call, deadline_seconds=0.01)
    try:
        for chip in board.chips:
            with pytest.raises(Busy):
                await hung(dcmi.network_health, chip.ref, device=("network", chip.ref))
        for chip in dead:
            with pytest.raises(Busy):
                await hung(dcmi.health, chip.ref, device=chip.ref)
        assert worker.written_off == 20
        for chip in set(board.chips) - set(dead):
            assert await read_chip(worker, dcmi, chip.ref) == HealthSample()
    finally:
        control.release(ports)
        for chip in dead:
            control.release(device=chip.physical_id)
