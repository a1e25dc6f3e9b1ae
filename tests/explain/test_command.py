"""`kubectl npu` against an API server: outputs and errors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dev.explain.reasons import held, npu
from dev.explain.static_api import StaticApi
from dev.explain.world import ask, claim, class_, device, node, slice_
from tests.explain.test_apart import EXPENSIVE
from trio_npu_dra.tools.cluster.cel import selector

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster


def test_json_and_yaml_are_the_same(cluster: Cluster) -> None:
    """Free, used and unhealthy NPUs, and their holders."""
    data = cluster.data()
    _, out, _ = cluster.run("-o", "yaml")

    assert yaml.safe_load(out) == data
    n1, n2 = data["nodes"]
    assert [(one["free"], one["used"], one["unhealthy"]) for one in (n1, n2)] == [
        (2, 6, 0),
        (3, 1, 1),
    ]
    assert n2["devices"][3]["heldBy"][0]["pods"] == ["eval-0"]
    assert [(ring["size"], ring["free"]) for ring in n1["rings"]] == [(4, 0), (4, 2)]
    assert (n1["devices"][5]["ring"], n1["devices"][5]["numaNode"]) == ("ring-1", 1)


def test_the_first_line_has_the_sums(cluster: Cluster) -> None:
    """Of the driver that was asked for, in both tables."""
    line = "12 devices of npu.huawei.com on 2 nodes: 5 free, 7 used, 1 unhealthy\n\nNODE "
    assert cluster.run()[1].startswith(line)
    assert cluster.run("-o", "wide")[1].startswith(line)
    assert cluster.run("--driver", "a.example")[1] == "no device of a.example is published\n"


def test_a_claim_for_countless_devices_is_explained(cluster: Cluster) -> None:
    """What would help is not tried with each smaller number."""
    cluster.api.objects.append(claim("greedy", ask(count=2**63 - 1)))
    assert "3 instead of 9223372036854775807" in cluster.run("explain", "claim/greedy")[1]


def test_an_expensive_selector_is_undecided(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server accepts it, and the library would need a minute for each device."""
    monkeypatch.setattr(selector, "SECONDS", 2)
    cluster.api.objects.append(claim("expensive", ask(EXPENSIVE)))

    data = cluster.data("explain", "claim/expensive")

    assert data["outcome"] == "Undecided"
    assert data["message"].startswith("the CEL takes more than 2 s or 1 GiB")


def test_colours_are_for_terminals(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe goes plain text, unless colours are asked for."""
    _, plain, _ = cluster.run("-o", "wide")
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, coloured, _ = cluster.run("-o", "wide")

    assert "used, unhealthy" in plain
    assert "\x1b" not in plain
    assert "\x1b[1;31munhealthy\x1b[0m" in coloured


def test_words_have_a_colour_by_what_they_say(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a name nor a denied word has one: `none is free`, `is not unhealthy`."""
    cluster.api.objects.append(claim("unhealthy", ask(count=9)))
    monkeypatch.setenv("FORCE_COLOR", "1")

    waiting = cluster.run("explain", "claim/unhealthy")[1].splitlines()[0]
    healthy = cluster.run("why-unhealthy", "n1/npu-6")[1].splitlines()[0]

    begin, _, sentence = waiting.partition(": ")
    assert begin == "\x1b[1mclaim default/unhealthy\x1b[0m \x1b[33mwaits\x1b[0m"
    assert sentence.startswith("request npu of claim default/unhealthy wants 9 devices ")
    assert "\x1b" not in sentence
    assert healthy == (
        "\x1b[1mnpu-6 of n1\x1b[0m is \x1b[32mnot unhealthy\x1b[0m: no taint keeps claims away"
    )


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_reader_that_has_seen_enough_is_no_error(
    cluster: Cluster, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `| head` ends before the command; nothing is printed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert cluster.run("-o", form) == (1, "", "")


def test_control_characters_do_not_reach_the_terminal(cluster: Cluster) -> None:
    """Else the writer of an Event could write to the screen, and forge lines."""
    event = next(one for one in cluster.api.objects if one["kind"] == "Event")
    event["message"] = "npu-3: \x1b[2J\nnpu-3 of n2 is not unhealthy"

    _, out, _ = cluster.run("why-unhealthy", "n2/npu-3")

    assert "npu-3: \\u001b[2J\\nnpu-3 of n2 is not unhealthy (2 times)" in out


def test_control_characters_of_errors_do_not_reach_the_terminal(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is that of the server, or of a proxy."""
    refusal = {"kind": "Status", "message": "no\x1b]0;owned\x07\u202e"}
    monkeypatch.setattr(StaticApi, "answer", lambda *_: (403, refusal))

    _, _, err = cluster.run("list")

    assert err == "kubectl npu: list resourceslices: no\\u001b]0;owned\\u0007\\u202e (HTTP 403)\n"


def test_many_slices_come_in_pages(cluster: Cluster) -> None:
    """More than one answer of the API server has."""
    cluster.api.objects += [slice_(f"m{at}-0", npu(0), node=f"m{at:02}") for at in range(23)]

    assert len(cluster.data()["nodes"]) == 25


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("explain", "nobody"), 1, "there is no pod and no claim nobody in namespace default"),
        (("explain", "claim/nobody"), 1, "there is no claim nobody in namespace default"),
        (("explain", "node/n1"), 2, "only pod/, claim/, job/, jobset/ and lws/NAME"),
        (("explain", "pod/a_b"), 2, "'a_b' is no name in pods: it must be "),
        (("explain", "a", "-n", "../b"), 2, "'../b' is no namespace: it must be "),
        (("explain",), 2, "`explain` needs a name: `kubectl npu explain NAME`"),
        (("list", "n1"), 2, "`list` takes no name: `kubectl npu node n1` shows one node"),
        (("node", "n3"), 1, "node n3 has no devices of npu.huawei.com"),
        (
            ("why-unhealthy", "npu-0"),
            1,
            "2 nodes have a device npu-0; say which: n1/npu-0, n2/npu-0",
        ),
        (
            ("why-unhealthy", "npu-9"),
            1,
            "no device npu-9 is published, and no partition of that name is held",
        ),
    ],
)
def test_errors_say_what_to_do(
    cluster: Cluster, words: tuple[str, ...], code: int, said: str
) -> None:
    """One line; the exit code tells a wrong command line from a name that the cluster lacks."""
    status, out, err = cluster.run(*words)

    assert (status, out) == (code, "")
    assert said in err


def test_a_healthy_device_is_not_called_unhealthy(cluster: Cluster) -> None:
    """It says so, with the holder."""
    _, out, _ = cluster.run("why-unhealthy", "n1/npu-4")

    assert out.splitlines()[0] == "npu-4 of n1 is not unhealthy: no taint keeps claims away"
    assert "claim default/infer (pod infer-0)" in out


def test_a_leaving_npu_is_not_called_unhealthy(cluster: Cluster) -> None:
    """It goes to a device plugin resource once its shares are released; no claim gets it."""
    leaving = npu(0, taints=[{"key": "npu.huawei.com/leaving", "effect": "NoSchedule"}])
    cluster.api.objects += [slice_("n3-0", leaving, node="n3")]

    _, out, _ = cluster.run("why-unhealthy", "n3/npu-0")
    *_, row = cluster.data()["nodes"]

    assert out.startswith(
        "npu-0 of n3 is not unhealthy, and no claim gets it: npu.huawei.com/leaving:NoSchedule\n"
    )
    assert (row["free"], row["unhealthy"], row["devices"][0]["unhealthy"]) == (0, 0, False)


def test_partitions_and_other_drivers(cluster: Cluster) -> None:
    """A partition that is held makes its NPU used; other drivers' devices come with `--driver`."""
    counters = [{"name": "npu-0", "counters": {"ai-cores": {"value": "20"}}}]

    def takes(amount: str) -> dict[str, Any]:
        used = {"counterSet": "npu-0", "counters": {"ai-cores": {"value": amount}}}
        return {"consumesCounters": [used]}

    partition = npu(0, **takes("10"))
    partition["name"], partition["attributes"]["type"] = "npu-0-vnpu-1", {"string": "vnpu"}
    claim = held(0, name="infer")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result["device"] = "npu-0-vnpu-1"
    nic = slice_("nic", device("npu-7"), driver="nic.example.com", pool="nics")
    cluster.api.objects[:] = [
        *(node("n1"), class_(), claim, nic),
        slice_("s0", count=2, sharedCounters=counters),
        slice_("s1", npu(0, **takes("20")), partition, count=2),
    ]

    (row,) = cluster.data()["nodes"]
    (other,) = cluster.data("--driver", "nic.example.com")["nodes"]

    assert [(one["name"], one["state"]) for one in row["devices"]] == [
        ("npu-0", "Shared"),
        ("npu-0-vnpu-1", "Used"),
    ]
    assert (row["total"], row["used"]) == (1, 1)
    assert [one["name"] for one in other["devices"]] == ["npu-7"]
    facts = ("model", "memoryBytes", "ring", "numaNode")
    assert [other["devices"][0][fact] for fact in facts] == [None] * 4


def test_a_pool_that_is_not_complete_is_said_to_be(cluster: Cluster) -> None:
    """Its devices look free, and schedulers allocate none of them."""
    cluster.api.objects += [slice_("n3-0", npu(0), node="n3", count=2)]

    _, out, _ = cluster.run()
    *_, row = cluster.data()["nodes"]

    flaw = "of pool n3 of npu.huawei.com only 1 of its 2 slices are published"
    assert out.endswith(
        f"\nno devices are allocated here (Kubernetes 1.36 and later)\n  n3: {flaw}\n"
    )
    assert row["flaws"] == [
        {
            "reason": "PoolIncomplete",
            "driver": "npu.huawei.com",
            "pool": "n3",
            "slices": 1,
            "wanted": 2,
        }
    ]
