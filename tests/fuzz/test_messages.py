"""Any messages to the registration and DRAPlugin services, and any answers of a driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from anyio.from_thread import BlockingPortal
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.sockets import served
from dev.fuzz.values import mangled
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, result
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Channel, RpcError, Status, UnaryMethod, methods
from trio_npu_dra.kit.grpc._generated import pluginregistration
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.kubelet import dra_plugin, registration
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult

SECONDS: Final = 10.0
METHODS: Final[dict[str, UnaryMethod[Any, Any]]] = {
    "prepare": methods.NODE_PREPARE_RESOURCES_V1,
    "unprepare": methods.NODE_UNPREPARE_RESOURCES_V1,
    "prepare, v1beta1": methods.NODE_PREPARE_RESOURCES_V1BETA1,
    "unprepare, v1beta1": methods.NODE_UNPREPARE_RESOURCES_V1BETA1,
    "info": methods.GET_INFO,
    "notice": methods.NOTIFY_REGISTRATION_STATUS,
}
REFUSALS: Final = {Status.INTERNAL, Status.RESOURCE_EXHAUSTED}
STATUS_LIMIT: Final = 4096


@dataclass(frozen=True)
class Raw:
    """Bytes in place of a message, as grpclib sends one."""

    content: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 - betterproto2's name
        """The bytes."""
        return self.content


class Odd:
    """A driver that gives the answers of a test, whatever the request."""

    def __init__(self) -> None:
        self.asked: list[ClaimRef] = []
        self.answers: dict[str, PrepareResult] = {}

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Give the answers, also for claims that the request does not have."""
        await trio.lowlevel.checkpoint()
        self.asked += claims
        return self.answers

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """The same."""
        answers = await self.prepare(claims)
        return {uid: answer.error for uid, answer in answers.items()}


@dataclass(frozen=True)
class Services:
    """Both services on one socket."""

    portal: BlockingPortal
    channel: Channel
    driver: Odd
    status: Observable[registration.RegistrationStatus]

    def call(self, method: UnaryMethod[Any, Any], body: bytes) -> Any:
        """Call a method with any body; its reply, or how it was refused."""
        raw: Any = UnaryMethod(method.path, Raw, method.reply)
        call = partial(self.channel.unary, raw, Raw(body), timeout_seconds=SECONDS)
        try:
            return self.portal.call(call)
        except RpcError as error:
            return error


@pytest.fixture(scope="module")
def services(portal: BlockingPortal, place: Path) -> Iterator[Services]:
    """Both services, for all examples."""
    driver = Odd()
    status = Observable(registration.NOT_REGISTERED)
    routes = [
        *dra_plugin.routes(driver),
        *registration.routes("npu.huawei.com", Path("/dra.sock"), status),
    ]
    serving = portal.wrap_async_context_manager(served(place / "dra.sock", routes))
    with serving as channel:
        yield Services(portal, channel, driver, status)


uids = st.sampled_from(["a", "b", "uid-a", "", "/", "..", "A" * 200, "a\n", "é"]) | st.text()
claims = st.lists(st.builds(v1.Claim, namespace=uids, uid=uids, name=uids), max_size=4)
requests = claims.map(lambda wanted: bytes(v1.NodePrepareResourcesRequest(claims=wanted)))
notices = st.builds(
    lambda registered, error: bytes(
        pluginregistration.RegistrationStatus(plugin_registered=registered, error=error)
    ),
    st.booleans(),
    st.text() | st.just("x" * 5_000),
)
well_formed = requests | notices
bodies = well_formed | well_formed.flatmap(mangled) | st.binary(max_size=60)
words = st.text() | st.sampled_from(["\0", "x" * 10_000])
results = st.builds(
    PrepareResult,
    devices=st.lists(
        st.builds(
            PreparedDevice,
            requests=st.tuples(words),
            pool=words,
            device=words,
            cdi_device_ids=st.tuples(words),
            share_id=st.none() | words,
        ),
        max_size=2,
    ).map(tuple),
    error=words | st.just("\udcff"),
)


@example(
    name="prepare",
    body=bytes(v1.NodePrepareResourcesRequest(claims=[v1.Claim("a", "a", "a")])),
    answers={"a": PrepareResult(error="\udcff")},
)
@example(
    name="notice",
    body=bytes(pluginregistration.RegistrationStatus(error="x" * 5000)),
    answers={},
)
@example(name="prepare", body=b"\x08\x01", answers={})
@example(name="prepare", body=b"\x0a\x02\x10\x01", answers={})
@example(name="prepare", body=b"\x0b", answers={})
@example(name="notice", body=b"\x08\x00\x10\x01", answers={})
@given(
    name=st.sampled_from(list(METHODS)),
    body=bodies,
    answers=st.dictionaries(uids, results, max_size=3),
)
def test_any_body_is_answered_for_its_claims_or_refused(
    services: Services, name: str, body: bytes, answers: dict[str, PrepareResult]
) -> None:
    """That holds for any answers of the driver, and the next call is answered."""
    method = METHODS[name]
    services.driver.answers = answers
    services.status.set(registration.NOT_REGISTERED)
    told = services.call(method, body)
    if isinstance(told, RpcError):
        assert told.status in REFUSALS
        assert "bug" not in told.message
    else:
        request = method.request.parse(body)
        if hasattr(request, "claims"):
            assert set(told.claims) == {each.uid for each in request.claims}
            assert all(len(each.error) <= STATUS_LIMIT for each in told.claims.values())
    assert len(services.status.value.error) <= STATUS_LIMIT
    assert isinstance(services.call(methods.GET_INFO, b""), methods.GET_INFO.reply)


@pytest.fixture(scope="module")
def node(place: Path) -> NodeOnDisk:
    """A node with a correct claim."""
    node = NodeOnDisk(place / "node")
    node.source.store(claim("good", result("npu-5")))
    return node


@given(wanted=claims)
@example(wanted=[v1.Claim("default", "a" * 128, "good")])
def test_any_claims_of_a_call_cost_no_other_one(node: NodeOnDisk, wanted: list[v1.Claim]) -> None:
    """The correct claim is prepared and unprepared."""
    for folder in (node.state_folder, node.cdi_root):
        shutil.rmtree(folder, ignore_errors=True)
    trio.run(_beside, node, wanted)


async def _beside(node: NodeOnDisk, wanted: list[v1.Claim]) -> None:
    driver = node.start(patience=AT_ONCE)
    call = [*wanted, v1.Claim("default", "uid-good", "good")]
    with trio.fail_after(SECONDS):
        answers = await dra_plugin.prepare(driver, call)
        assert set(answers) == {each.uid for each in call}
        assert answers["uid-good"].error == ""
        assert all(answers[each.uid].error for each in wanted if each.uid != "uid-good")
        undone = await dra_plugin.unprepare(driver, call)
        assert set(undone) == {each.uid for each in call}
        assert undone["uid-good"] == ""
        assert node.record_uids() == set()
