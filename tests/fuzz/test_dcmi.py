"""Any answer of the Ascend driver's library, through real ctypes: any code, number, or bytes."""

from __future__ import annotations

import ctypes
import math
import subprocess
from contextlib import suppress
from dataclasses import astuple, replace
from ipaddress import ip_interface
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.values import mangled
from tests.claims.node import npu
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.npu_status import network_data
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.report.news import MESSAGE_LIMIT, news
from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import ChipRef, FaultEvent
from trio_npu_dra.ascend.dcmi.worker import open_worker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.health import read_chip, read_network
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import init
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.ascend.telemetry import TelemetryReader
from trio_npu_dra.kit.api.objects import ObjectMeta, OwnerReference, ResourceSlice
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool.pool import Pool, check, specs
from trio_npu_dra.lab.standins.api_rules import Kubernetes, admit_slice

SOURCE: Final = Path(__file__).with_name("answers.c")
NOW: Final = 1.8e9
DRIVER: Final = "npu.huawei.com"
POLICY: Final = TaintPolicy.parse("", domain=DRIVER)
OWNER: Final = OwnerReference(api_version="v1", kind="Node", name="node-1", uid="1")
MAX_NPUS: Final = 1024

OK: Final = b"\0"
REFUSED: Final = bytes([217])  # "not supported": how `dcmi_init` answers on a 950


def said(*numbers: int) -> bytes:
    """Numbers as bytes, in the form that the library of `answers.c` takes."""
    return b"".join(bytes([3, number]) for number in numbers)


def node(name: int, chips: int) -> bytes:
    """Answers of a node with a chip on each card, up to the chips' names."""
    told = [OK, OK + said(chips, *range(chips))]
    names = OK + bytes([2 * name]) + said(20) + b"\0" + bytes(32)
    for number in range(chips):
        told.append(OK + said(1, 255, 255) + OK + said(0))
        told.append(OK + said(number) + names + OK + said(0, 0, 0, 0) + OK + said(number))
    return b"".join(told)


def node_of_950(chips: int) -> bytes:
    """Answers of a node that the second generation of calls serves, up to the chips' names."""
    told = [REFUSED + OK, OK + said(chips, *range(chips))]
    names = OK + bytes([2 * 4]) + said(20) + b"\0" + bytes(32)
    for number in range(chips):
        told.append(OK + said(0) + names + OK + said(0, 0, 0, 0) + OK + said(number))
    return b"".join(told)


nodes = st.builds(node, st.integers(0, 6), st.integers(1, 3)) | st.builds(
    node_of_950, st.integers(1, 3)
)
tails = st.binary(max_size=400) | st.binary(min_size=100, max_size=400)
answers = st.builds(bytes.__add__, nodes | nodes.flatmap(mangled), tails) | tails


class Answering:
    """A library of `answers.c`, and its client."""

    def __init__(self, path: Path) -> None:
        self.cdll = ctypes.CDLL(str(path))
        self._library = Library(path.parent, {"LD_LIBRARY_PATH": str(path.parent)}).load()
        self._fed = b""

    @property
    def dcmi(self) -> Dcmi:
        """A client that does not know yet which generation of calls serves the chips."""
        return Dcmi(self._library)

    def feed(self, answers: bytes) -> None:
        """Let the library answer with these bytes."""
        self._fed = answers  # must live as long as the library reads them
        self.cdll.answers_feed(self._fed, ctypes.c_size_t(len(answers)))


@pytest.fixture(scope="module")
def library(place: Path) -> Answering:
    """The library, compiled."""
    path = place / "libdcmi.so"
    command = ["cc", "-std=c11", "-O1", "-Wall", "-shared", "-fPIC", "-Wl,-Bsymbolic"]
    subprocess.run([*command, "-o", str(path), str(SOURCE)], check=True)
    return Answering(path)


@given(answers=answers)
@example(answers=node(0, 2)[:-1] + b"\0")
@example(answers=node_of_950(2))
@example(answers=OK + OK + b"\1\1")
@example(answers=OK + OK + said(1, 0) + OK + b"\1\1")
@example(answers=OK + OK + said(1, 0) + OK + b"\1\0")
@example(answers=OK + OK + said(2, 0, 0) + OK + said(1))
def test_any_answers_make_a_board_or_one_error(
    place: Path, library: Answering, answers: bytes
) -> None:
    """The Board can be published, shown to people, and used by the next look."""
    library.feed(answers)
    trio.run(_look, library.dcmi, Host(host_root=place, dev_root=place, sysfs_root=place))


async def _look(dcmi: Dcmi, host: Host) -> None:
    board = EMPTY_BOARD
    async with open_worker() as worker:
        for _ in range(2):
            try:
                await init(worker, dcmi, host, board)
                board = await discover(worker, dcmi, host, known=board)
            except DcmiError:
                continue
            _check(board)


def _check(board: Board) -> None:
    """Check that the Board can be published and shown."""
    assert len(board.chips) <= MAX_NPUS
    assert len(board.by_name) == len(board.chips)
    for one in news(EMPTY_BOARD, board, since=0.0):
        assert len(one.message.encode()) <= 4 * MESSAGE_LIMIT
    devices = build_pool(available(board, ()), board, POLICY, ServerFeatures()).devices
    for chip in board.chips:
        if data := network_data(chip):
            assert [str(ip_interface(address)) for address in data.ips] == list(data.ips)
    wanted = Pool(driver=DRIVER, node_name="node-1", owner=OWNER, devices=devices)
    check(wanted)
    for spec in specs(wanted, 1):
        wire = ResourceSlice(metadata=ObjectMeta(name="a"), spec=spec).to_wire()
        admit_slice(wire, kubernetes=Kubernetes())


@given(event=st.binary(max_size=320), looks=st.lists(st.binary(max_size=120), max_size=3))
def test_any_event_and_any_look_leave_health_that_can_be_told(
    library: Answering, event: bytes, looks: list[bytes]
) -> None:
    """The callback returns to the library's thread, and no task waits for an invalid time."""
    events: list[FaultEvent] = []
    library.feed(OK)
    library.dcmi.subscribe(events.append)
    library.feed(event)
    library.cdll.answers_event()
    trio.run(_watch, library, events, looks)


async def _watch(library: Answering, events: list[FaultEvent], looks: list[bytes]) -> None:
    address, faults = ChipRef(0, 0), ChipFaults(packaged_table())
    async with open_worker() as worker:
        for one in events:
            faults.note(one, NOW)
        for later, look in enumerate(looks):
            library.feed(OK + look)
            faults.confirm_and_take(await read_chip(worker, library.dcmi, address), NOW + later)
            with suppress(DcmiError):
                faults.network = await read_network(worker, library.dcmi, address)
            unhealthy = replace(npu(0), health=faults.health(NOW + later))
            _check(Board(chips=(unhealthy,)))
            for at in (faults.next_change, faults.recheck_at):
                assert at is None or NOW - 1 <= at < math.inf
            measured = astuple(await TelemetryReader(worker, library.dcmi).read(unhealthy))
            flat = chain.from_iterable(one if isinstance(one, tuple) else [one] for one in measured)
            assert all(value is None or math.isfinite(value) for value in flat)
            await is_any_occupied(
                worker, library.dcmi, Observable(Board(chips=(unhealthy,))), ["/dev/davinci0"]
            )
