"""As much of MindSpore as the example calls."""

import cann


def set_device(target: str) -> None:
    assert target == "Ascend"
    cann.say_libraries()
