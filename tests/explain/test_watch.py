"""`kubectl npu -w` prints again when something changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from dev.explain.world import slice_

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster


def watched(cluster: Cluster, change: Callable[[], object]) -> tuple[str, str]:
    """What a watch prints on stdout and stderr; *change* comes after its first answer.

    After the second answer it may not read any more, and ends.
    """

    def act() -> None:
        assert cluster.api.watched.acquire(timeout=10)
        change()
        cluster.api.changed.release()
        assert cluster.api.watched.acquire(timeout=10)
        cluster.api.forbidden = frozenset({"resourceslices"})
        cluster.api.changed.release()

    thread = threading.Thread(target=act)
    thread.start()
    status, out, err = cluster.run("-w")
    thread.join()
    assert status == 1
    return out, err


def test_watching_prints_again_when_it_changes(cluster: Cluster) -> None:
    """The second answer comes after the change."""

    def change() -> None:
        kept = [one for one in cluster.api.objects if one["metadata"]["name"] != "eval"]
        cluster.api.objects[:] = kept

    out, err = watched(cluster, change)

    assert "you cannot list resourceslices" in err
    assert out.count("NODE  NPUS") == 2
    assert out.count("claim default/eval") == 1


def test_watching_goes_on_after_a_slice_that_cannot_be_read(cluster: Cluster) -> None:
    """Any driver may write one: the next answer names it."""
    torn = slice_("other", driver="gpu.example.com")
    torn["spec"]["pool"] = "n1"
    cluster.api.changed_slice = torn

    out, err = watched(cluster, lambda: cluster.api.objects.append(torn))

    assert err == "kubectl npu: list resourceslices: you cannot list resourceslices (HTTP 403)\n"
    assert out.count("ResourceSlice other cannot be read") == 1
