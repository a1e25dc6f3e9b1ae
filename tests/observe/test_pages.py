"""A whole daemon's pages as operators see them, over a real port, parsed as Prometheus does."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from dev.rig.parts import Rig, served_rig
from dev.rig.waiting import HANG_SECONDS
from tests.observe.browser import get
from trio_npu_dra import __version__
from trio_npu_dra.agent.device_plugin import pods
from trio_npu_dra.agent.observe import pages, self_check
from trio_npu_dra.agent.observe.catalog import CATALOG, Kind
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.lab.simulator import Severity
from trio_npu_dra.lab.standins.api_rules import Kubernetes
from trio_npu_dra.lab.standins.kubelet import open_kubelet
from trio_npu_dra.revision import REVISION

SEPARATE = 0xA2301001
"""A code that Huawei's table calls SeparateNPU."""


@pytest.fixture
async def rig(folder: Path, simulator: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A node with eight NPUs whose daemon will have pages, made for each request."""
    monkeypatch.setattr(pages, "SCRAPE_SECONDS", 0)
    monkeypatch.setattr(self_check, "LOOK_SECONDS", 0)
    with socket.socket() as reserved:
        # While it is bound no other process gets this port by chance; one that names it may listen.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        async with served_rig(folder, simulator, http_port=port, health_poll_interval=600) as rig:
            yield rig


@dataclass
class Scrape:
    """The samples of one scrape; names without the prefix."""

    kinds: dict[str, str] = field(default_factory=dict)
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of the series with these labels and any others."""
        return [
            value
            for found, theirs, value in self.samples
            if found == f"npu_dra_{name}" and labels.items() <= theirs.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """The value of the one series with these labels."""
        (value,) = self.values(name, **labels)
        return value


async def scrape(rig: Rig) -> Scrape:
    """The content of `/metrics`."""
    status, body = await get(rig.http_port, "/metrics")
    assert status == 200
    found = Scrape()
    for family in text_string_to_metric_families(body):
        found.kinds[family.name] = family.type
        found.samples += [(one.name, one.labels, one.value) for one in family.samples]
    return found


async def until_scraped(rig: Rig, name: str, value: float, **labels: str) -> Scrape:
    """The first scrape in which a series has a value."""
    while True:
        found = await scrape(rig)
        if found.values(name, **labels) == [value]:
            return found
        await trio.sleep(0.02)


async def until_only_events_tell(rig: Rig) -> None:
    """Wait until the chips were read for the second time: after that only events trigger reads."""
    function = "dcmi_get_device_health"
    await until_scraped(rig, "dcmi_call_duration_seconds_count", 16, function=function)


async def test_a_prepared_claim_is_counted_and_named(rig: Rig) -> None:
    """The metrics show claims, devices, calls and the NPU's holder until it is unprepared."""
    async with rig.registered() as kubelet:
        await rig.published()
        await until_scraped(rig, "pool_current", 1)
        before = await scrape(rig)
        claim = rig.claim("train", "npu-3")
        await kubelet.prepare([claim])
        held = await scrape(rig)
        await kubelet.unprepare([claim])
        after = await scrape(rig)
        shares = [rig.claim(name, "npu-3", share_id=f"share-{name}") for name in ("one", "two")]
        await kubelet.prepare(shares)
        shared = await scrape(rig)

    for name in ("claims_prepared", "devices_prepared"):
        assert [each.value(name) for each in (before, held, after)] == [0, 1, 0]
    for name in ("claim_call_duration_seconds_count", "claim_operations_total"):
        assert [each.value(name, operation="prepare") for each in (before, held)] == [0, 1]
        assert [each.value(name, operation="unprepare") for each in (held, after)] == [0, 1]
    held_by = {"claim_namespace": "default", "claim": "train"}
    assert len(held.values("npu_temperature_celsius", **held_by)) == 1
    assert held.value("npu_power_watts", device="npu-3", chip="910B4", **held_by) > 0
    assert after.value("npu_power_watts", device="npu-3", claim="") > 0
    # An NPU of several claims is one, and named after none: its power is not that of one of them.
    assert (shared.value("claims_prepared"), shared.value("devices_prepared")) == (2, 1)
    assert shared.value("npu_power_watts", device="npu-3", claim="") > 0


async def test_a_pod_with_an_npu_of_a_resource_is_named(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the container that has it, from the kubelet's list, which the driver reads anyway."""
    monkeypatch.setattr(pods, "SOON_SECONDS", 0.05)
    rig.device_plugin = "0"
    resource, npu = "huawei.com/Ascend910", "Ascend910-0"
    async with rig.device_manager() as manager, rig.registered():
        await manager.wait_for(resource, npu)
        await manager.allocate(resource, [npu])
        manager.pods["ml", "train"] = {resource: [npu]}
        pod = {"pod_namespace": "ml", "pod_name": "train", "container_name": "main"}
        found = await until_scraped(rig, "npu_hccs_up", 1, device="npu-0", claim="", **pod)

    assert len(found.values("npu_power_watts", pod_name="train")) == 1
    assert len(found.values("npu_power_watts", pod_name="")) == 7


async def test_a_claim_that_cannot_be_prepared_is_counted_by_reason(rig: Rig) -> None:
    """The reason is the class of the error."""
    async with rig.registered() as kubelet:
        await rig.published()
        await kubelet.prepare([rig.claim("train", "npu-99")])
        found = await scrape(rig)

    assert found.value("claim_errors_total", operation="prepare", reason="UnknownDevice") == 1


async def test_a_fault_shows_in_level_code_events_and_latency(rig: Rig) -> None:
    """Level and code show while it lasts; the event's count and its latency stay."""
    device = {"device": "npu-2"}
    async with rig.registered():
        await until_scraped(rig, "pool_current", 1)
        await until_only_events_tell(rig)
        with rig.board.control() as control:
            control.add_fault(2, SEPARATE, Severity.CRITICAL)
            unhealthy = await until_scraped(rig, "fault_event_publish_duration_seconds_count", 1)
            control.clear_fault(2, SEPARATE)
            well = await until_scraped(rig, "slice_writes_total", 2, verb="update", result="ok")

    (code,) = unhealthy.values("npu_fault_start_timestamp_seconds", code="A2301001", **device)
    assert code > 0
    assert unhealthy.value("npu_fault_level", level="NormalNPU", **device) == 0
    assert sum(unhealthy.values("npu_fault_level", **device)) == 1
    assert unhealthy.value("fault_events_total", assertion="occurrence") == 1
    assert unhealthy.value("slice_writes_total", verb="update", result="ok") == 1
    assert unhealthy.value("server_keeps_taints") == unhealthy.value("server_keeps_counters") == 1
    assert well.values("npu_fault_start_timestamp_seconds", **device) == []
    assert well.value("fault_events_total", assertion="recovery") == 1


async def test_features_of_the_api_server_are_told_apart(rig: Rig) -> None:
    """One that keeps taints may drop counters."""
    rig.api.kubernetes = Kubernetes(counters=False)
    async with rig.daemon():
        found = await until_scraped(rig, "server_keeps_counters", 0)

    assert found.value("server_keeps_taints") == 1


async def test_a_write_that_is_refused_is_counted_by_reason(rig: Rig) -> None:
    """The pool is not current meanwhile."""
    async with rig.registered():
        await until_scraped(rig, "pool_current", 1)
        rig.api.fail_next(1, status=409, verb="update")
        with rig.board.control() as control:
            control.add_fault(2, SEPARATE, Severity.CRITICAL)
        found = await until_scraped(rig, "slice_writes_total", 1, verb="update", result="ok")

    assert found.value("slice_writes_total", verb="update", result="Conflict") == 1
    assert found.value("slice_writes_total", verb="create", result="ok") == 1
    assert found.value("pool_devices") == 8


async def test_a_hung_chip_does_not_hang_the_scrape(rig: Rig) -> None:
    """Its values are missing, other chips have theirs, and the call counts as written off."""
    with rig.board.control() as control:
        control.hang("dcmi_get_device_power_info", 4)
        async with rig.registered():
            await rig.published()
            found = await until_scraped(rig, "dcmi_calls_written_off", 1)
            control.release("dcmi_get_device_power_info", 4)

    assert len(found.values("npu_power_watts")) == 7
    assert found.values("npu_power_watts", device="npu-4") == []
    assert found.value("npu_memory_size_bytes", device="npu-4") > 0


async def test_npu_metrics_can_be_turned_off(rig: Rig) -> None:
    """A scrape then asks no chip."""
    rig.npu_metrics = False
    async with rig.registered():
        found = await until_scraped(rig, "pool_current", 1)

    assert found.values("npu_temperature_celsius") == []
    asked = {
        labels["function"] for name, labels, _ in found.samples if "dcmi_call" in name and labels
    }
    assert asked
    assert "dcmi_get_device_temperature" not in asked


async def test_what_is_served_is_what_is_documented(rig: Rig) -> None:
    """Every metric is in the catalog with its kind, and the catalog has no other."""
    with rig.board.control() as control:
        control.create_vnpu(3, "vir10_3c_16g")
    async with rig.registered() as kubelet:
        await rig.published()
        await until_scraped(rig, "fault_events_subscribed", 1)
        with rig.board.control() as control:
            control.add_fault(2, SEPARATE, Severity.CRITICAL)
        await kubelet.prepare([rig.claim("train", "npu-99")])
        found = await until_scraped(rig, "npu_fault_level", 0, device="npu-2", level="NormalNPU")

    ours = {name: kind for name, kind in found.kinds.items() if name.startswith("npu_dra_")}
    assert ours == {
        one.name.removesuffix("_total") if one.kind is Kind.COUNTER else one.name: str(one.kind)
        for one in CATALOG
    }
    assert found.kinds["process_resident_memory_bytes"] == "gauge"
    assert found.value("build_info", version=__version__, revision=REVISION) == 1


async def test_readiness_lists_what_is_missing(rig: Rig) -> None:
    """The daemon is alive from the start, and ready once kubelet, API server and NPUs are there."""
    rig.api.fail_next(1000, status=503, verb="create")
    async with rig.daemon():
        assert await get(rig.http_port, "/healthz") == (200, "ok\n")
        status, body = await get(rig.http_port, "/readyz")
        assert status == 503
        assert "not registered with the kubelet" in body
        assert "no pool was accepted by the API server" in body
        rig.api.heal()
        async with open_kubelet(rig.registration):
            await until_scraped(rig, "pool_current", 1)
            await until_scraped(rig, "fault_events_subscribed", 1)
            assert await get(rig.http_port, "/readyz") == (200, "ok\n")


async def test_readiness_says_why_npus_are_not_known(rig: Rig) -> None:
    """Until the library answers."""
    with rig.board.control() as control:
        control.set_return_code("dcmi_init", -8012)
        async with rig.registered():
            status, body = await get(rig.http_port, "/readyz")
            control.release("dcmi_init")
    assert status == 503
    assert "the NPUs have not been read yet: dcmi_init returned -8012" in body


async def test_a_node_whose_library_has_no_chip_is_ready(rig: Rig) -> None:
    """Its pool is empty; what is on the bus is asked for again."""
    with rig.board.control() as control:
        control.set_return_code("dcmi_init", -8008)
        async with rig.registered():
            assert not (await rig.published()).spec.devices
            with trio.fail_after(HANG_SECONDS):
                while (await get(rig.http_port, "/readyz"))[0] != 200:  # noqa: ASYNC110 - a page
                    await trio.sleep(0.01)
            control.release("dcmi_init")


async def test_a_stuck_loop_is_named(rig: Rig) -> None:
    """The daemon is neither alive nor ready until the step ends."""
    async with rig.registered():
        await until_scraped(rig, "pool_current", 1)
        with watchdog.step("repairing CDI files", limit=0):
            for page in ("/healthz", "/readyz"):
                status, body = await get(rig.http_port, page)
                assert (status, body.split(" has ")[0]) == (503, "repairing CDI files")
        assert await get(rig.http_port, "/healthz") == (200, "ok\n")


async def test_claims_that_cannot_be_served_are_said_while_it_lasts(rig: Rig) -> None:
    """The daemon is not alive: only a restarted container sees a folder that was made again."""
    claims = rig.settings.plugin_directory / "claims"
    unknown = Claim(namespace="default", uid="uid-x", name="x")
    async with rig.registered() as kubelet:
        kept = claims.rename(rig.folder / "kept")
        claims.symlink_to(kept)
        assert await kubelet.unprepare([unknown]) != {"uid-x": ""}
        for page in ("/healthz", "/readyz"):
            status, body = await get(rig.http_port, page)
            assert status == 503
            assert f"claims cannot be served: cannot make {claims}: Not a directory" in body

        claims.unlink()
        kept.rename(claims)
        assert await kubelet.unprepare([unknown]) == {"uid-x": ""}
        assert await get(rig.http_port, "/healthz") == (200, "ok\n")
