import pytest

from trio_npu_dra.ascend.dcmi._codes import check
from trio_npu_dra.ascend.dcmi.errors import (
    Busy,
    DcmiError,
    IdUnknown,
    NotPermitted,
    NotReady,
    NotSupported,
)


@pytest.mark.parametrize(
    ("code", "error_class", "is_retryable"),
    [
        (-8001, DcmiError, False),
        (-8002, NotPermitted, False),
        (-8006, Busy, True),
        (-8008, IdUnknown, False),
        (-8012, NotReady, True),
        (-8017, Busy, True),
        (-8020, Busy, True),
        (-8255, NotSupported, False),
        (-4711, DcmiError, False),
    ],
)
def test_a_code_becomes_the_error_that_says_what_to_do(
    code: int, error_class: type[DcmiError], *, is_retryable: bool
) -> None:
    """Codes that the vendor calls worth a retry are retryable errors; an unknown one is plain."""
    with pytest.raises(DcmiError) as caught:
        check(code, "dcmi_get_device_health")
    assert type(caught.value) is error_class
    assert (caught.value.code, caught.value.retryable) == (code, is_retryable)
    assert "dcmi_get_device_health" in str(caught.value)
