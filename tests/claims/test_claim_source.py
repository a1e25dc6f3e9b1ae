"""One promise for all sources of claims: the fake of these tests, and the API client."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tests.claims.node import FakeClaims, NodeOnDisk, claim, ref, result
from trio_npu_dra.kit.api.claims import ClaimReader
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import Credentials, load_credentials
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.errors import NotFound, Unavailable
from trio_npu_dra.kit.kubelet.driver import Driver
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState


@dataclass
class Source:
    """A source of claims, and how a test changes it."""

    reader: ClaimReader
    store: Callable[[ResourceClaim], ResourceClaim]
    break_down: Callable[[], None]


def _fake() -> Source:
    fake = FakeClaims()

    def store(claimed: ResourceClaim) -> ResourceClaim:
        fake.store(claimed)
        return claimed

    return Source(fake, store, lambda: fake.faults.append(Unavailable("503", status=503)))


def _credentials(folder: Path, socket: Path) -> Credentials:
    path = folder / "kubeconfig"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], "
        f"clusters: [{{name: k, cluster: {{server: 'unix://{socket}'}}}}], "
        "users: [{name: u, user: {}}]}"
    )
    return load_credentials(path)


@pytest.fixture(params=["fake", "api-client"])
async def source(
    request: pytest.FixtureRequest, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[Source]:
    """Each source in turn."""
    if request.param == "fake":
        yield _fake()
        return
    state, socket = ApiState(), tmp_path / "api.sock"
    await nursery.start(serve_api, state, socket)
    async with open_client(_credentials(tmp_path, socket)) as client:
        # More than one: the client may ask again by itself.
        yield Source(client, state.add, lambda: state.fail_next(100, status=503, verb="get"))


async def _bounded(call: Awaitable[ResourceClaim]) -> ResourceClaim:
    with trio.fail_after(10):
        return await call


async def test_a_stored_claim_is_read_with_its_allocation(source: Source) -> None:
    """And with the UID it has now."""
    stored = source.store(claim("a", result("npu-1")))

    read = await _bounded(source.reader.get(ResourceClaim, "a", "default"))

    assert (read.metadata.uid, read.status) == (stored.metadata.uid, stored.status)


async def test_a_claim_is_prepared_from_it(source: Source, node: NodeOnDisk) -> None:
    """`NodeClaims` reads from each, and is what the kubelet's calls are given to."""
    stored = source.store(claim("a", result("npu-1")))
    driver: Driver = node.start(reader=source.reader)
    uid = stored.metadata.uid or ""

    with trio.fail_after(10):
        answer = await driver.prepare([ref("a", uid)])

    assert [device.device for device in answer[uid].devices] == ["npu-1"]
    assert node.cdi_uids() == {uid}


async def test_a_claim_is_read_from_the_cache_of_the_api_server_where_that_will_do(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """By version 0; else by none, which asks for the newest."""
    state, socket = ApiState(), tmp_path / "api.sock"
    await nursery.start(serve_api, state, socket)
    state.add(claim("a", result("npu-1")))
    async with open_client(_credentials(tmp_path, socket)) as client:
        for is_cached in (False, True):
            await client.get(ResourceClaim, "a", "default", is_cached=is_cached)
    assert [request.query for request in state.requests] == [{}, {"resourceVersion": "0"}]


async def test_a_missing_claim_is_not_found(source: Source) -> None:
    """Also one of that name in another namespace."""
    source.store(claim("a", result("npu-1")))

    for is_cached in (False, True):
        with pytest.raises(NotFound):
            await _bounded(
                source.reader.get(ResourceClaim, "a", "kube-system", is_cached=is_cached)
            )


async def test_an_outage_is_unavailable(source: Source) -> None:
    """Which is retryable."""
    source.store(claim("a", result("npu-1")))
    source.break_down()

    with pytest.raises(Unavailable):
        await _bounded(source.reader.get(ResourceClaim, "a", "default"))


async def test_a_name_that_nothing_can_have_fails_its_claim_alone(
    node: NodeOnDisk, tmp_path: Path, nursery: trio.Nursery
) -> None:
    """The other claim of the call is prepared."""
    state, socket = ApiState(), tmp_path / "api.sock"
    await nursery.start(serve_api, state, socket)
    uid = state.add(claim("a", result("npu-1"))).metadata.uid or ""
    async with open_client(_credentials(tmp_path, socket)) as client:
        driver = node.start(reader=client)
        with trio.fail_after(10):
            answer = await driver.prepare([ref("a", uid), ref("a\nb", "uid-b")])
    assert answer[uid].error == ""
    assert "'a\\nb' is no name in resourceclaims" in answer["uid-b"].error
