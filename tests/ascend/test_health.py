import pytest

from trio_npu_dra.ascend.dcmi.client import GONE, Dcmi
from trio_npu_dra.ascend.dcmi.errors import NotReady, NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.dcmi.types import Severity as Alarm
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.health import read_chip, read_network
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.lab.simulator import BoardControl, Severity, SimulatedBoard

CHIP = ChipRef(1, 0)
ALARM, BOOT_STATUS = "dcmi_get_device_health", "dcmi_get_device_boot_status"


@pytest.fixture(autouse=True)
def initialised(dcmi: Dcmi) -> None:
    """The library is in use already when these tests change the board."""
    dcmi.init()


async def test_a_fault_is_read_with_the_vendors_words_until_it_is_cleared(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """All active codes, and the worst alarm; without faults neither."""
    assert await read_chip(worker, dcmi, CHIP) == HealthSample()
    control.add_fault(1, 0x81078603, Severity.MINOR)
    control.add_fault(1, 0x80E01801, Severity.MAJOR)
    reading = await read_chip(worker, dcmi, CHIP)
    assert reading.severity is Alarm.MAJOR
    assert reading.codes is not None
    assert set(reading.codes) == {0x80E01801, 0x81078603}
    assert reading.codes[0x80E01801].startswith("simulated fault")
    control.clear_fault(1, 0x81078603)
    control.clear_fault(1, 0x80E01801)
    assert await read_chip(worker, dcmi, CHIP) == HealthSample()


async def test_a_list_of_128_codes_is_full(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """DCMI lists no more; all of them are read."""
    codes = set(range(0x80000000, 0x80000080))
    for code in codes:
        control.add_fault(1, code, Severity.MINOR)
    reading = await read_chip(worker, dcmi, CHIP)
    assert (set(reading.codes or ()), reading.is_full) == (codes, True)


@pytest.mark.parametrize("code", [None, -8007, -8008, -8012])
@pytest.mark.parametrize("boot_code", [-8001, -8007, -8008, -8012, -8002])
async def test_the_boot_status_tells_a_chip_that_starts_from_a_missing_one(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, code: int | None, boot_code: int
) -> None:
    """Whichever way the library takes to say that there is no health; one is 0xFFFFFFFF."""
    if code is None:
        control.set_gone(1)
    else:
        control.set_return_code(ALARM, code, 1)
    control.set_return_code(BOOT_STATUS, boot_code, 1)
    reading = await read_chip(worker, dcmi, CHIP)
    assert reading.unmonitored
    assert reading.missing == (boot_code in (-8001, -8007, -8008))
    assert reading.booting == (boot_code == -8012)


@pytest.mark.parametrize(("boot_code", "phase"), [(0, "in its BIOS"), (-8012, "not ready")])
async def test_a_booting_chip_is_not_monitored(
    worker: DcmiWorker,
    dcmi: Dcmi,
    control: BoardControl,
    boot_code: int,
    phase: str,
) -> None:
    """Not ready is no verdict; the message says how far the chip is, if the boot status does."""
    control.set_booting(1)
    control.set_return_code(BOOT_STATUS, boot_code, 1)
    assert await read_chip(worker, dcmi, CHIP) == HealthSample(
        unmonitored=f"the chip is {phase}", booting=True
    )


@pytest.mark.parametrize(
    ("health", "boot_status"),
    [(GONE, 16), (GONE, 7), (GONE, 2**31 - 1), (4, 16), (7, 0), (2**32 - 2, 1)],
)
async def test_an_odd_health_of_a_chip_that_does_not_boot_is_no_verdict(
    worker: DcmiWorker, simulated: SimulatedBoard, health: int, boot_status: int
) -> None:
    """However long: it may work. A health that was not written is one of these."""

    class Odd(Dcmi):
        def health(self, chip: ChipRef) -> int:
            del chip
            return health

        def boot_status(self, chip: ChipRef) -> int:
            del chip
            return boot_status

    odd = Odd.load(simulated.root)
    reading = await read_chip(worker, odd, CHIP)
    assert reading == HealthSample(unmonitored=reading.unmonitored)
    assert str(boot_status if health == GONE else health) in reading.unmonitored


@pytest.mark.parametrize("code", [-8005, -8006, -8013, -8017, -8020, -8255])
async def test_a_chip_that_cannot_be_asked_is_not_monitored(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, code: int
) -> None:
    """Whatever keeps the library from answering, the chip is not called faulty for it."""
    control.set_return_code(ALARM, code, 1)
    reading = await read_chip(worker, dcmi, CHIP)
    assert reading == HealthSample(unmonitored=reading.unmonitored)
    assert reading.unmonitored


@pytest.mark.parametrize("health", Severity)
async def test_unreadable_codes_are_not_known(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, health: Severity
) -> None:
    """Not "none": known codes stand, whatever the alarm in the chip's health."""
    control.set_health(1, health)
    control.set_return_code("dcmi_get_device_errorcode_v2", -8005, 1)
    assert await read_chip(worker, dcmi, CHIP) == HealthSample(codes=None, severity=Alarm(health))


async def test_a_code_without_words_is_read_all_the_same(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """A fault that the library cannot explain is a fault."""
    control.add_fault(1, 0x80E01801, Severity.MAJOR)
    control.set_return_code("dcmi_get_device_errorcode_string", -8001, 1)
    assert (await read_chip(worker, dcmi, CHIP)).codes == {0x80E01801: ""}


@pytest.mark.parametrize(
    ("status", "words"), [(0, ""), (6, ""), (3, "RoCE port: unreachable (3)"), (5, "fault (5)")]
)
async def test_a_roce_port_has_its_own_problem(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, status: int, words: str
) -> None:
    """None while it works or is being set up; a message otherwise."""
    control.set_network_health(1, status)
    problem = await read_network(worker, dcmi, CHIP)
    assert problem.endswith(words)
    assert bool(problem) == bool(words)


@pytest.mark.parametrize(("code", "error"), [(-8255, NotSupported), (-8012, NotReady)])
async def test_a_port_that_cannot_be_asked_is_an_error(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, code: int, error: type[Exception]
) -> None:
    """A chip without a port says so; the caller decides what stands."""
    control.set_return_code("dcmi_get_device_network_health", code, 1)
    with pytest.raises(error):
        await read_network(worker, dcmi, CHIP)
