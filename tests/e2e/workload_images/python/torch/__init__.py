"""As much of PyTorch with torch_npu as the examples call."""

import cann


class Tensor:
    """Equal numbers on an NPU that the container must have."""

    def __init__(self, size: int, device: str) -> None:
        index = int(device.removeprefix("npu:"))
        assert index < cann.device_count(), f"{device} of {cann.device_count()}"
        self.total = float(size)

    def sum(self) -> "Tensor":
        return self

    def item(self) -> float:
        return self.total


class npu:
    @staticmethod
    def device_count() -> int:
        cann.say_libraries()
        return cann.device_count()

    @staticmethod
    def set_device(index: int) -> None:
        Tensor(1, f"npu:{index}")


def ones(size: int, *, device: str) -> Tensor:
    return Tensor(size, device)
