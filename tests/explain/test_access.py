"""Which namespaces `kubectl npu` looks into, and what it says where it gets no answer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.explain.scene import scene
from dev.explain.static_api import StaticApi, served
from trio_npu_dra.tools.cli.kubectl_npu import main


@pytest.fixture
def api() -> StaticApi:
    """The scene of the page, with a second pod and claim `eval` in namespace `team`."""
    objects = scene()
    for one in list(objects):
        if one["metadata"]["name"] in {"eval", "eval-0", "train-0"}:
            other = copy.deepcopy(one)
            other["metadata"]["namespace"] = "team"
            if one["metadata"]["name"] == "train-0":
                other["metadata"]["name"] = "lonely"
            objects.append(other)
    return StaticApi(objects)


@pytest.fixture(autouse=True)
def _served(api: StaticApi, tmp_path: Path) -> Iterator[None]:
    """To kubectl, which has a context `other` with the namespace `team`."""
    with served(api, tmp_path, {"other": "team"}):
        yield


def test_a_context_gives_the_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    """Another than the current one, when it is asked for; `--namespace` wins."""
    assert main(["explain", "lonely"]) == 1
    assert "no pod and no claim lonely in namespace default" in capsys.readouterr().err
    assert main(["explain", "lonely", "--context", "other"]) == 0
    assert capsys.readouterr().out.startswith("pod team/lonely ")
    assert main(["explain", "train-0", "--context=other", "-n", "default"]) == 0
    assert main(["explain", "lonely", "--context", "none"]) == 2
    assert 'kubectl proxy ended: context "none" does not exist' in capsys.readouterr().err


def test_all_namespaces_are_searched(capsys: pytest.CaptureFixture[str]) -> None:
    """For a name that one of them has; the other commands show all anyway."""
    assert main(["-A", "explain", "lonely"]) == 0
    assert capsys.readouterr().out.startswith("pod team/lonely ")
    assert main(["-A", "explain", "claim/train"]) == 0
    assert main(["-A", "explain", "claim/eval"]) == 1
    said = "2 namespaces have a claim eval; say which with --namespace: default, team"
    assert said in capsys.readouterr().err
    assert main(["-A", "explain", "nobody"]) == 1
    assert "no pod and no claim nobody in any namespace" in capsys.readouterr().err
    assert main(["-A"]) == 0


def test_a_cluster_that_does_not_answer_lets_the_bare_command_say_what_it_is(
    api: StaticApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below why; who has given a command knows it."""
    assert main([]) == 0
    assert "see kubectl npu --help" not in capsys.readouterr().err
    api.forbidden = frozenset({"resourceslices"})
    assert main([]) == 1
    why, what = capsys.readouterr().err.splitlines()
    assert why.startswith("kubectl npu: list resourceslices: ")
    assert what.startswith("kubectl npu shows the NPUs of a cluster, ")
    assert what.endswith("(see kubectl npu --help)")
    assert main(["list"]) == 1
    assert what not in capsys.readouterr().err
