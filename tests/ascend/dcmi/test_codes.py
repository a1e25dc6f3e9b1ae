import pytest

from trio_npu_dra.ascend.dcmi._codes import MEANINGS, check
from trio_npu_dra.ascend.dcmi.errors import (
    Busy,
    DcmiError,
    DeviceLost,
    NotPermitted,
    NotReady,
    NotSupported,
)


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (-8001, DcmiError),
        (-8002, NotPermitted),
        (-8006, Busy),
        (-8008, DeviceLost),
        (-8012, NotReady),
        (-8017, Busy),
        (-8020, Busy),
        (-8255, NotSupported),
        (-4711, DcmiError),
    ],
)
def test_a_code_becomes_the_error_that_says_what_to_do(
    code: int, error_class: type[DcmiError]
) -> None:
    """Codes that the vendor calls worth a retry are retryable errors; an unknown one is plain."""
    with pytest.raises(DcmiError) as caught:
        check(code, "dcmi_get_device_health")
    assert type(caught.value) is error_class
    assert caught.value.code == code
    assert "dcmi_get_device_health" in str(caught.value)


def test_the_vendors_retryable_codes_are_retryable() -> None:
    """Time-out, not ready, upgrading and occupied may succeed a moment later."""
    assert {code for code, (error, _) in MEANINGS.items() if error.retryable} >= {
        -8006,
        -8012,
        -8017,
        -8020,
    }


def test_zero_is_success() -> None:
    """Nothing is raised for code 0."""
    check(0, "dcmi_init")
