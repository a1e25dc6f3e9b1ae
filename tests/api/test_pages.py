"""Long lists: an object that cannot be read hides no other."""

from __future__ import annotations

from typing import Any

import pytest

from trio_npu_dra.kit.api.bodies import LIST_LIMIT
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.parsing import VALUES_LIMIT
from trio_npu_dra.kit.api.pods import Pod
from trio_npu_dra.lab.standins.api_state import ApiState


def deep(levels: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


MANY = [{"name": "a"}] * VALUES_LIMIT
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too many values": ({"env": MANY}, f"at most {VALUES_LIMIT} are read"),
    "too many bytes": ({"args": ["x" * LIST_LIMIT]}, f"an answer of more than {LIST_LIMIT} bytes"),
    "too deep": ({"args": deep(250)}, "recursion limit exceeded"),
    "not of its kind": ({"resources": []}, "spec.containers.0.resources: "),
}


def add(state: ApiState, name: Any, **container: Any) -> None:
    """Create a pod."""
    state.create("pods", {"metadata": {"name": name}, "spec": {"containers": [container]}})


@pytest.mark.parametrize("page", [1, 5])
@pytest.mark.parametrize(("container", "why"), WRONG.values(), ids=WRONG)
async def test_an_object_that_cannot_be_read_is_left_out(
    container: dict[str, Any], why: str, page: int, client: KubeClient, state: ApiState
) -> None:
    """It is named, with the reason, wherever it is in the list."""
    for name in ("b", "c", "d", "e", "g"):
        add(state, name)
    for name in ("a", "f", "h"):
        add(state, name, **container)

    found = await client.list_all(Pod, page=page)

    assert [pod.metadata.name for pod in found.objects] == ["b", "c", "d", "e", "g"]
    assert [pod.title for pod in found.unread] == ["a", "f", "h"]
    assert all(pod.uid and why in pod.why for pod in found.unread)
    assert found.version


async def test_objects_that_are_left_out_cost_a_request_each(
    client: KubeClient, state: ApiState
) -> None:
    """A tenant may make many: the client asks once for an object that it leaves out."""
    for name in "abcdef":
        add(state, name, args=["x" * LIST_LIMIT])
    found = await client.list_all(Pod, page=4)
    assert len(found.unread) == 6
    assert state.asked("list", "pods") == 6 + 2  # after pages of four and of two
