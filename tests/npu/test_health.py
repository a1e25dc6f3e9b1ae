import pytest

from trio_npu_dra.npu.dcmi.client import Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.health import ask_health
from trio_npu_dra.npu.model import HEALTHY, HealthState, NpuHealth
from trio_npu_dra.simulator import BoardControl, Severity

CHIP = Address(1, 0)


@pytest.fixture(autouse=True)
def initialised(dcmi: Dcmi) -> None:
    """The library is in use already when these tests change the board."""
    dcmi.init()


async def test_a_chip_without_alarms_is_healthy(worker: DcmiWorker, dcmi: Dcmi) -> None:
    """No codes, nothing to say."""
    assert await ask_health(worker, dcmi, CHIP) == HEALTHY


async def test_a_major_fault_makes_a_chip_unhealthy_until_it_is_cleared(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """The codes come ascending with the vendor's words; clearing them heals."""
    control.add_fault(1, 0x81078603, Severity.MINOR)
    control.add_fault(1, 0x80E01801, Severity.MAJOR)
    health = await ask_health(worker, dcmi, CHIP)
    assert health.state is HealthState.UNHEALTHY
    assert health.codes == (0x80E01801, 0x81078603)
    assert health.message.startswith("80E01801 simulated fault")
    control.clear_fault(1, 0x81078603)
    control.clear_fault(1, 0x80E01801)
    assert await ask_health(worker, dcmi, CHIP) == HEALTHY


async def test_a_minor_alarm_is_told_but_does_not_condemn(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """A chip with a minor alarm is healthy and shows the code."""
    control.add_fault(1, 0x81078603, Severity.MINOR)
    health = await ask_health(worker, dcmi, CHIP)
    assert (health.state, health.codes) == (HealthState.HEALTHY, (0x81078603,))


async def test_a_chip_that_dropped_off_the_bus_is_unhealthy(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """Success with health 0xFFFFFFFF means that the chip is gone."""
    control.set_gone(1)
    health = await ask_health(worker, dcmi, CHIP)
    assert health.state is HealthState.UNHEALTHY
    assert "does not exist" in health.message


async def test_a_booting_chip_is_unknown(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """Not ready is no verdict; the message says how far it is."""
    control.set_booting(1)
    health = await ask_health(worker, dcmi, CHIP)
    assert health == NpuHealth(state=HealthState.UNKNOWN, message="the chip is in its BIOS")


@pytest.mark.parametrize("code", [-8005, -8006, -8012, -8013, -8017, -8020, -8255])
async def test_a_chip_that_cannot_be_asked_is_unknown(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl, code: int
) -> None:
    """Whatever keeps the library from answering, the chip is not called unhealthy for it."""
    control.set_return_code("dcmi_get_device_health", code, 1)
    assert (await ask_health(worker, dcmi, CHIP)).state is HealthState.UNKNOWN


async def test_a_chip_that_the_library_does_not_know_any_more_is_unhealthy(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """Code -8008 is the loss of the chip."""
    control.set_return_code("dcmi_get_device_health", -8008, 1)
    assert (await ask_health(worker, dcmi, CHIP)).state is HealthState.UNHEALTHY


async def test_without_error_codes_the_worst_alarm_decides(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """The verdict does not hang on a list that cannot be read."""
    control.set_health(1, Severity.CRITICAL)
    control.set_return_code("dcmi_get_device_errorcode_v2", -8005, 1)
    health = await ask_health(worker, dcmi, CHIP)
    assert (health.state, health.codes) == (HealthState.UNHEALTHY, ())


async def test_a_code_without_words_is_told_as_a_number(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """A fault that the library cannot explain is reported all the same."""
    control.add_fault(1, 0x80E01801, Severity.MAJOR)
    control.set_return_code("dcmi_get_device_errorcode_string", -8001, 1)
    assert (await ask_health(worker, dcmi, CHIP)).message == "80E01801"


async def test_a_chip_that_does_not_tell_its_boot_phase_is_not_ready(
    worker: DcmiWorker, dcmi: Dcmi, control: BoardControl
) -> None:
    """Without boot status, as in a container, the message stays general."""
    control.set_booting(1)
    control.set_return_code("dcmi_get_device_boot_status", -8002, 1)
    assert (await ask_health(worker, dcmi, CHIP)).message == "the chip is not ready"
