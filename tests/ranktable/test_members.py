"""Which pods are a job's, what each lacks, and what of an NPU makes a rank of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ranktable.jobs import Wire, claim, gathered, module, npu, pod
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.api.pods import PlacedPod
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.tools.ranktable.members import Gathered, gather, live, names_of

TRAIN = pod("train-0", "n0", index=0)


def changed(of: PlacedPod, **changes: Any) -> PlacedPod:
    """The pod with other fields in its metadata, spec and status."""
    wire = of.model_dump(by_alias=True)
    return PlacedPod.model_validate({key: wire[key] | changes.get(key, {}) for key in wire})


def of_one(of: PlacedPod, *devices: Wire, **status: Any) -> Gathered:
    """The members of a job of one pod, whose claim has another status."""
    wire = claim(TRAIN, *devices).model_dump(by_alias=True)
    made = ResourceClaim.model_validate(wire | {"status": wire["status"] | status})
    return gather(live([of]), {made.metadata.name: made}, 1)


def test_pods_that_end_are_not_the_jobs() -> None:
    """Nor those of an attempt before, which a JobSet's controller has not ended yet."""
    attempt = "jobset.sigs.k8s.io/restart-attempt"
    pods = [
        pod("train-0", "n0", labels={attempt: "1"}),
        pod("train-1", "n1", labels={attempt: "0"}),
        changed(pod("train-2", "n2", labels={attempt: "1"}), metadata={"deletionTimestamp": "t"}),
        changed(pod("train-3", "n3", labels={attempt: "1"}), status={"phase": "Failed"}),
    ]
    assert [one.metadata.name for one in live(pods)] == ["train-0"]


def test_pods_have_the_order_of_their_job() -> None:
    """By their index if all have one, else by the numbers in their names."""
    named = [pod(f"train-{number}", None) for number in (10, 9)]
    indexed = [pod("a", None, index=10), pod("b", None, index=9)]
    job = "jobset.sigs.k8s.io/job-global-index"
    of_set = [
        pod("a", None, index=0, labels={job: "1"}),
        pod("b", None, index=1, labels={job: "0"}),
    ]
    assert [one.metadata.name for one in live(named)] == ["train-9", "train-10"]
    assert [one.metadata.name for one in live(indexed)] == ["b", "a"]
    assert [one.metadata.name for one in live(of_set)] == ["b", "a"]
    assert [one.metadata.name for one in live([*indexed, *named])][:2] == ["a", "b"]


@pytest.mark.parametrize(
    ("of", "status", "lack"),
    [
        (pod("train-0", None), {}, "pod train-0 has no node yet"),
        (changed(TRAIN, status={"podIP": None}), {}, "pod train-0 has no address yet"),
        (changed(TRAIN, status={"hostIP": None}), {}, "pod train-0 has no address yet"),
        (
            changed(TRAIN, status={"resourceClaimStatuses": []}),
            {},
            "pod train-0 lacks claim npus, which is not made of its template yet",
        ),
        (
            changed(TRAIN, spec={"resourceClaims": [{"name": "npus", "resourceClaimName": "b"}]}),
            {},
            "pod train-0 lacks claim b, which does not exist or cannot be read",
        ),
        (
            changed(TRAIN, metadata={"uid": "of another"}),
            {},
            "pod train-0 lacks claim train-0-npus, which is not reserved for it",
        ),
        (
            TRAIN,
            {"allocation": None},
            "pod train-0 lacks devices in claim train-0-npus, which is not allocated",
        ),
        (
            TRAIN,
            {"devices": [{"driver": "npu.huawei.com", "pool": "n0", "device": "npu-3"}]},
            "pod train-0 lacks what the driver on node n0 says of npu-3 in claim train-0-npus",
        ),
        (
            TRAIN,
            {"devices": []},
            "pod train-0 lacks what the driver on node n0 says of npu-3 in claim train-0-npus",
        ),
    ],
)
def test_a_pod_lacks_something(of: PlacedPod, status: Wire, lack: str) -> None:
    """The message says what, in the order in which it comes."""
    assert of_one(of, npu(3), **status).lacks == (lack,)


def test_pods_are_missing() -> None:
    """The first by their index, if they have one; there may also be too many for a moment."""
    job = [(pod(f"train-{n}", f"n{n}", index=n), [npu(0)]) for n in (0, 2)]
    (lack,) = gathered(job, 4).lacks
    assert lack == "2 of 4 pods are there; those with index 1, 3 are not"
    (lack,) = gathered(job, 2**31 - 1).lacks
    assert lack.endswith("those with index 1, 3, 4, 5, 6, 7, 8, 9 and 2147483637 more are not")
    assert gathered(job, 1).lacks == ("2 of 1 pods are there",)
    unnumbered = [(pod("train-0", "n0"), [npu(0)])]
    assert gathered(unnumbered, 2).lacks == ("1 of 2 pods are there",)
    of_set = "jobset.sigs.k8s.io/job-global-index"
    in_two_jobs = [(pod(f"a-{n}", "n0", index=0, labels={of_set: n}), [npu(0)]) for n in "01"]
    assert gathered(in_two_jobs, 3).lacks == ("2 of 3 pods are there",)
    assert not gathered(job).lacks


def test_a_pod_without_npus_has_no_rank() -> None:
    """But a job needs one that has."""
    leader = changed(pod("leader", "n0"), spec={"resourceClaims": []}, status={"podIP": None})
    alone = gather(live([leader]), {}, 1)
    assert alone.lacks == ("no pod of the job has a claim for a device of npu.huawei.com",)
    looks_on = npu(3) | {"adminAccess": True}
    of_another = npu(3) | {"driver": "gpu.example.com"}
    found = gathered([(leader, []), (TRAIN, [npu(0), looks_on, of_another])], 2)
    assert [(member.pod, len(member.npus)) for member in found.members] == [("train-0", 1)]


def test_a_claim_may_be_of_extended_resources_or_of_a_pod_group() -> None:
    """The first has another place in the pod, the second is reserved for the group."""
    extended = changed(
        TRAIN,
        spec={"resourceClaims": []},
        status={"extendedResourceClaimStatus": {"resourceClaimName": "train-0-npus"}},
    )
    grouped = changed(TRAIN, spec={"schedulingGroup": {"podGroupName": "gang"}})
    group = {"resource": "podgroups", "name": "gang", "uid": "u"}
    assert len(of_one(extended, npu(0)).members) == 1
    assert len(of_one(grouped, npu(0), reservedFor=[group]).members) == 1
    assert of_one(TRAIN, npu(0), reservedFor=[group]).lacks


def test_both_dies_of_a_module_are_ranks() -> None:
    """Each with its own address and SDID, between other NPUs by physical id."""
    devices = [
        module(6, super_pod=7, sdid=32, ips=("10.20.0.6/24", "fd00::7/64")),
        module(0, super_pod=7, sdid=32),
    ]
    (member,) = gathered([(TRAIN, devices)]).members
    assert [(npu.physical_id, npu.sdid) for npu in member.npus] == [
        (0, 32),
        (1, 33),
        (6, 38),
        (7, 39),
    ]
    assert [str(npu.addresses[0]) for npu in member.npus[2:]] == ["10.20.0.6", "fd00::7"]
    assert member.super_pod == 7


def test_a_pod_knows_itself_by_its_host_name() -> None:
    """Which is that of its index in an Indexed Job, and is cut to 63 letters."""
    of_job = changed(TRAIN, spec={"hostname": "other-0"})
    assert names_of(of_job) == {"train-0", "other-0"}
    assert names_of(pod("n" * 62 + "-1", None)) == {"n" * 62 + "-1", "n" * 62}


def test_an_npu_that_is_not_ready_is_told() -> None:
    """It has a rank all the same: the job decides."""
    down = {"type": "Ready", "status": "False", "reason": "Unhealthy", "message": "link down"}
    (member,) = gathered([(TRAIN, [npu(3) | {"conditions": [down]}])]).members
    assert member.troubles == ("npu-3 of pod train-0 is not Ready: link down",)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (npu(3) | {"shareID": "a"}, "npu-3 of pod train-0 is a share of an NPU"),
        (npu(3, type="vnpu"), "npu-3 of pod train-0 is a vNPU: HCCL works on whole NPUs alone"),
        (
            npu(3, physicalId="x"),
            "status of npu-3 of pod train-0 is not understood: physicalId",
        ),
        (
            npu(3, ips=["10.20.0.999/24"]),
            "status of npu-3 of pod train-0 is not understood: '10",
        ),
    ],
)
def test_hccl_cannot_use_a_device(device: Wire, why: str) -> None:
    """No wait can help."""
    with pytest.raises(DriverError, match=why):
        gathered([(TRAIN, [device])])


def test_an_npu_counts_once() -> None:
    """A pod may name its claim twice; pods that share one cannot be ranks of their own."""
    pods = [pod(f"train-{at}", "n0", index=at) for at in (0, 1)]
    wire = claim(pods[0], npu(0), npu(1)).model_dump(by_alias=True)
    other = {"resource": "pods", "name": "train-1", "uid": "uid-train-1"}
    wire["status"]["reservedFor"] = [*wire["status"]["reservedFor"], other]
    shared = ResourceClaim.model_validate(wire)
    named = []
    for one in pods:
        of = one.model_dump(by_alias=True)
        of["spec"]["resourceClaims"] = [
            {"name": name, "resourceClaimName": shared.metadata.name} for name in "ab"
        ]
        named.append(PlacedPod.model_validate(of))
    claims = {shared.metadata.name: shared}

    (member,) = gather(live(named[:1]), claims, 1).members
    assert [one.physical_id for one in member.npus] == [0, 1]
    with pytest.raises(
        DriverError, match="NPU 0 of node n0 is there twice, for pods train-0 and train-1"
    ):
        gather(live(named), claims, 2)
