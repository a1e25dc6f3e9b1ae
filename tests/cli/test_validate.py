"""`npu-dra validate` is for people who write manifests, and for their CI."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trio_npu_dra.agent.cli.main import main

WRONG = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
spec:
  config:
  - opaque:
      driver: npu.huawei.com
      parameters:
        apiVersion: npu.huawei.com/v1alpha1
        kind: NpuConfig
        driverMounts: 1
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
spec:
  devices:
    requests:
    - name: npu
      exactly:
        deviceClassName: half.npu.huawei.com
"""
SAID = "opaque config in the DeviceClass: driverMounts is 1: write true or false"


def test_what_is_wrong_has_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each file; and the exit code is 1."""
    wrong, right = tmp_path / "wrong.yaml", tmp_path / "right.yaml"
    wrong.write_text(WRONG)
    right.write_text(f"{WRONG.replace(': 1', ': true')}---\nkind: Job\napiVersion: batch/v1\n")

    assert main(["validate", str(wrong), str(right)]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{wrong}:10: {SAID}\nconfigs for npu.huawei.com: 2, problems: 1\n"
    assert printed.err == f"{right}:12: passed over: Job of batch/v1\n"
    assert main(["validate", str(right)]) == 0


def test_standard_input_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name is -."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(WRONG.encode())))
    assert main(["validate", "-"]) == 1
    assert f"<stdin>:10: {SAID}" in capsys.readouterr().out


def test_what_cannot_be_read_is_told_and_the_rest_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, whatever is found besides; each such file counts as a problem."""
    wrong, broken, missing = (tmp_path / name for name in ("wrong", "broken", "missing"))
    wrong.write_text(WRONG)
    broken.write_text("a: [\n")

    assert main(["validate", str(missing), str(broken), str(wrong)]) == 2
    printed = capsys.readouterr()
    assert SAID in printed.out
    assert f"{missing}: No such file or directory\n" in printed.err
    assert f"{broken}:2: " in printed.err
    assert printed.out.endswith("problems: 3\n")


def test_a_class_may_be_in_another_file_or_in_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So an unknown one is a warning: the exit code stays 0."""
    claim, class_ = tmp_path / "claim.yaml", tmp_path / "class.yaml"
    claim.write_text(CLAIM)
    class_.write_text(WRONG.replace("spec:", "metadata: {name: half.npu.huawei.com}\nspec:", 1))
    class_.write_text(class_.read_text().replace("driverMounts: 1", "driverMounts: true"))

    assert main(["validate", str(claim), str(class_)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["validate", str(claim)]) == 0
    assert capsys.readouterr().err == (
        f"{claim}:8: warning: DeviceClass half.npu.huawei.com is neither the driver's nor in "
        "these files; did you mean npu.huawei.com?\n"
    )


def test_it_loads_nothing_of_the_daemon() -> None:
    """It starts in a moment, and needs neither gRPC nor an event loop."""
    code = "import sys, trio_npu_dra.tools.cli.validate; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert not {"trio", "httpx", "grpclib", "asyncio", "cel", "rich"} & set(loaded.stdout.split())
