"""Which cluster and which namespace `kubectl npu` asks: kubeconfigs, contexts and namespaces."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

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


@pytest.fixture
def kubeconfig(api: StaticApi, tmp_path: Path) -> Iterator[Path]:
    """It has two contexts: `test`, and `other` with the namespace `team`."""
    with served(api, tmp_path) as path:
        config = json.loads(path.read_text())
        other = {"cluster": "test", "namespace": "team"}
        config["contexts"].append({"name": "other", "context": other})
        path.write_text(yaml.safe_dump(config))
        yield path


def test_a_context_gives_cluster_and_namespace(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another than the current one, when it is asked for; `--namespace` wins."""
    where = ["--kubeconfig", str(kubeconfig)]
    assert main(["explain", "lonely", *where]) == 1
    assert "no pod and no claim lonely in namespace default" in capsys.readouterr().err
    assert main(["explain", "lonely", "--context", "other", *where]) == 0
    assert capsys.readouterr().out.startswith("pod team/lonely ")
    assert main(["explain", "train-0", "--context=other", "-n", "default", *where]) == 0
    assert main(["explain", "lonely", "--context", "none", *where]) == 2
    assert "contexts has no entry named 'none'" in capsys.readouterr().err


def test_all_namespaces_are_searched(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a name that one of them has; the other commands show all anyway."""
    where = ["-A", "--kubeconfig", str(kubeconfig)]
    assert main(["explain", "lonely", *where]) == 0
    assert capsys.readouterr().out.startswith("pod team/lonely ")
    assert main(["explain", "claim/train", *where]) == 0
    assert main(["explain", "claim/eval", *where]) == 1
    said = "2 namespaces have a claim eval; say which with --namespace: default, team"
    assert said in capsys.readouterr().err
    assert main(["explain", "nobody", *where]) == 1
    assert "no pod and no claim nobody in any namespace" in capsys.readouterr().err
    assert main(where) == 0


def test_kubeconfig_may_name_several_files(
    kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first that has a current context has it, and missing files are none."""
    first = tmp_path / "first"
    first.write_text("current-context: other\n")
    files = (tmp_path / "absent", first, kubeconfig)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert main(["explain", "lonely"]) == 0
    assert capsys.readouterr().out.startswith("pod team/lonely ")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    assert main([]) == 2
    assert "names no file that exists" in capsys.readouterr().err


def test_a_context_needs_a_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod's service account has none."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--context", "far"]) == 2
    assert "no kubeconfig that could have the context far" in capsys.readouterr().err


def test_without_a_cluster_the_bare_command_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how to go on, whether no kubeconfig is there or no server answers."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert main([]) == 2
    why, what = capsys.readouterr().err.splitlines()
    assert why.startswith("kubectl npu: there is no kubeconfig: ")
    assert what.startswith("kubectl npu shows the NPUs of a cluster, ")
    assert what.endswith("(see kubectl npu --help)")

    with served(StaticApi(scene()), tmp_path) as path:
        monkeypatch.setenv("KUBECONFIG", str(path))
        assert main([]) == 0
        assert capsys.readouterr().err == ""
    assert main([]) == 1  # nobody listens there any more
    assert what in capsys.readouterr().err
    assert main(["list"]) == 1
    assert what not in capsys.readouterr().err
