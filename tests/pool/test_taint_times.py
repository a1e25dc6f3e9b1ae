"""The times at which taints were added."""

import pytest

from tests.pool.pools import apply, devices, numbered, pool, published, taint, tainted
from trio_npu_dra.kit.pool import plan
from trio_npu_dra.kit.pool.pool import DEVICES_PER_SLICE

(DEVICE,) = devices(1)
STORED = "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        pytest.param(None, None, id="any"),
        pytest.param("2026-01-01T12:00:00Z", None, id="equal"),
        pytest.param("2026-01-01T12:00:00.499Z", None, id="rounded-down"),
        pytest.param("2026-01-01T12:00:01Z", None, id="a-second-later"),
        pytest.param("2026-01-01T11:59:58.5Z", None, id="a-second-earlier"),
        pytest.param("2026-01-01T14:00:00+02:00", None, id="another-zone"),
        pytest.param("2026-01-01T12:00:02Z", "2026-01-01T12:00:02Z", id="two-seconds-later"),
        pytest.param("2026-01-01T12:00:01.5Z", "2026-01-01T12:00:02Z", id="rounded-up"),
        pytest.param("2026-01-01T12:01:00+00:00", "2026-01-01T12:01:00Z", id="a-minute-later"),
    ],
)
def test_a_stored_time_is_kept(wanted: str | None, written: str | None) -> None:
    """A time within a second of the stored one is the same; another is written in whole seconds."""
    existing = numbered(0, tainted(DEVICE, taint(time=STORED)))
    writes = plan([existing], pool(tainted(DEVICE, taint(time=wanted))))
    times = [
        added.time_added
        for write in writes
        for device in write.slice.spec.devices
        for added in device.taints
    ]
    assert times == ([written] if written else [])


@pytest.mark.parametrize("clock", ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"])
def test_the_servers_clock_does_not_matter(clock: str) -> None:
    """A stored time far back or ahead is kept like any other."""
    existing = numbered(0, tainted(DEVICE, taint(time=clock)))
    assert plan([existing], pool(tainted(DEVICE, taint()))) == ()


@pytest.mark.parametrize("stored", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "soon"])
def test_a_stored_time_that_is_no_date_gives_way(stored: str) -> None:
    """The API server takes years that Python has not."""
    existing = numbered(0, tainted(DEVICE, taint(time=stored)))
    (write,) = plan([existing], pool(tainted(DEVICE, taint(time=STORED))))
    (device,) = write.slice.spec.devices
    assert [added.time_added for added in device.taints] == [STORED]


def test_a_taint_keeps_its_time_when_its_device_moves() -> None:
    """The device comes into another slice with it."""
    many = devices(DEVICES_PER_SLICE + 1)
    marked = tainted(many[-1], taint(time=STORED))
    existing = published(pool(*many[:-1], marked))
    writes = plan(existing, pool(tainted(many[-1], taint())))
    (after,) = apply(existing, writes)
    assert after.spec.devices == (marked,)


def test_a_changed_taint_gets_a_new_time() -> None:
    """Another value is another taint."""
    existing = numbered(0, tainted(DEVICE, taint("minor", time=STORED)))
    (write,) = plan([existing], pool(tainted(DEVICE, taint("major"))))
    assert write.slice.spec.devices == (tainted(DEVICE, taint("major")),)
