"""Answers are complete whatever the driver returns, in both versions of the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio

from dev.grpc.serving import answer
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.kubelet.dra_plugin import CLAIM_LIMIT, ERROR_LIMIT, prepare, routes, unprepare
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult

NPU_0 = PreparedDevice(
    requests=("npu",),
    pool="node-a",
    device="npu-0",
    cdi_device_ids=("example.com/npu=uid-1-npu-0",),
    share_id="4a6c",
)
OK = PrepareResult(devices=(NPU_0,))


class ScriptedDriver:
    """Gives scripted answers, and remembers the requests."""

    def __init__(self, results: Mapping[str, PrepareResult] | None = None, **errors: str) -> None:
        self.results = results or {}
        self.errors = {uid.replace("_", "-"): error for uid, error in errors.items()}
        self.asked: list[tuple[ClaimRef, ...]] = []

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Give the scripted results."""
        await trio.lowlevel.checkpoint()
        self.asked.append(tuple(claims))
        return self.results

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Give the scripted errors."""
        await trio.lowlevel.checkpoint()
        self.asked.append(tuple(claims))
        return self.errors


def claim(uid: str, *, name: str = "train", namespace: str = "default") -> v1.Claim:
    """A claim in the kubelet's form."""
    return v1.Claim(namespace=namespace, uid=uid, name=name)


async def test_the_drivers_results_are_the_answer() -> None:
    """Devices and errors come back under their claims' UIDs."""
    driver = ScriptedDriver({"uid-1": OK, "uid-2": PrepareResult(error="no NPU left")})
    answer = await prepare(driver, [claim("uid-1"), claim("uid-2", name="infer")])
    assert answer == {"uid-1": OK, "uid-2": PrepareResult(error="no NPU left")}
    assert driver.asked == [
        (ClaimRef("default", "uid-1", "train"), ClaimRef("default", "uid-2", "infer"))
    ]


async def test_a_claim_the_driver_forgot_is_an_error_of_that_claim() -> None:
    """A UID without a result gets an error that says so; other claims keep their results."""
    answer = await prepare(ScriptedDriver({"uid-1": OK}), [claim("uid-1"), claim("uid-2")])
    assert answer["uid-1"] == OK
    assert "no answer for claim train" in answer["uid-2"].error
    assert await unprepare(ScriptedDriver(uid_1=""), [claim("uid-1"), claim("uid-2")]) == {
        "uid-1": "",
        "uid-2": "the driver gave no answer for claim train",
    }


async def test_answers_for_other_claims_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The kubelet would refuse the whole answer for one unknown UID."""
    answer = await prepare(ScriptedDriver({"uid-1": OK, "uid-9": OK}), [claim("uid-1")])
    assert answer == {"uid-1": OK}
    assert [vars(record)["claims"] for record in caplog.records] == [["uid-9"]]


async def test_a_claim_named_twice_is_prepared_once() -> None:
    """Duplicates in a request reach the driver as one claim and get one result."""
    driver = ScriptedDriver({"uid-1": OK})
    assert await prepare(driver, [claim("uid-1"), claim("uid-1")]) == {"uid-1": OK}
    assert driver.asked == [(ClaimRef("default", "uid-1", "train"),)]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (claim(""), "is not a UID"),
        (claim("../../etc/passwd"), "is not a UID"),
        (claim("uid\n"), "is not a UID"),
        (claim("x" * 129), "is not a UID"),
        (claim("uid-1", name=""), "without a namespace or a name"),
        (claim("uid-1", namespace=""), "without a namespace or a name"),
    ],
)
async def test_a_malformed_claim_never_reaches_the_driver(bad: v1.Claim, why: str) -> None:
    """A claim with a bad UID or without a name is refused alone, with the reason."""
    driver = ScriptedDriver({"good": OK})
    answer = await prepare(driver, [bad, claim("good")])
    assert answer["good"] == OK
    assert why in answer[bad.uid].error
    assert driver.asked == [(ClaimRef("default", "good", "train"),)]


async def test_a_call_with_too_many_claims_is_refused() -> None:
    """Each claim gets the reason; a call with the allowed number reaches the driver."""
    driver = ScriptedDriver()
    claims = [claim(f"uid-{number}") for number in range(CLAIM_LIMIT + 1)]
    answer = await prepare(driver, claims)
    words = f"the call names {CLAIM_LIMIT + 1} claims: at most {CLAIM_LIMIT} are prepared at once"
    assert answer == {each.uid: PrepareResult(error=words) for each in claims}
    assert set((await unprepare(driver, claims)).values()) == {words.replace(" prep", " unprep")}
    assert driver.asked == []
    await prepare(driver, claims[1:])
    assert [len(asked) for asked in driver.asked] == [CLAIM_LIMIT]


async def test_an_empty_request_is_answered_without_the_driver() -> None:
    """The health check's empty NodePrepareResources succeeds without work."""
    driver = ScriptedDriver()
    assert await prepare(driver, []) == {}
    assert driver.asked == []


async def test_an_error_carries_no_devices_and_has_an_end() -> None:
    """A failed claim has only its text, cut to a length that fits an Event."""
    driver = ScriptedDriver({"uid-1": PrepareResult(devices=(NPU_0,), error="x" * 9999)})
    answer = await prepare(driver, [claim("uid-1")])
    assert answer == {"uid-1": PrepareResult(error="x" * ERROR_LIMIT)}


async def test_each_version_says_what_it_knows_of_a_device() -> None:
    """Requests, pool, device and CDI names reach every kubelet, the share id those of v1."""
    request = v1.NodePrepareResourcesRequest(claims=[claim("uid-1")])
    prepare_v1, _, prepare_v1beta1, _ = routes(ScriptedDriver({"uid-1": OK}))
    newer = await answer(prepare_v1, request)
    older = await answer(prepare_v1beta1, request)
    known: dict[str, Any] = {
        "request_names": ["npu"],
        "pool_name": "node-a",
        "device_name": "npu-0",
        "cdi_device_ids": ["example.com/npu=uid-1-npu-0"],
    }
    assert newer.claims["uid-1"].devices == [v1.Device(**known, share_id="4a6c")]
    assert older.claims["uid-1"].devices == [v1.Device(**known)]


async def test_each_version_says_why_a_claim_failed() -> None:
    """A kubelet that sees no error takes the claim for prepared, or for gone."""
    driver = ScriptedDriver({"uid-1": PrepareResult(error="no NPU left")}, uid_1="disk full")
    body = bytes(v1.NodePrepareResourcesRequest(claims=[claim("uid-1")]))  # or of an unprepare
    answers = [
        await answer(route, route.handler.request_type.parse(body)) for route in routes(driver)
    ]
    errors = [answer.claims["uid-1"].error for answer in answers]
    assert errors == ["no NPU left", "disk full"] * 2


def test_the_claims_uid_is_field_2() -> None:
    """The wire order of a claim is namespace, UID, name."""
    assert bytes(claim("u", name="n", namespace="s")) == b"\x0a\x01s\x12\x01u\x1a\x01n"
