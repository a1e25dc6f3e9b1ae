"""`npu-dra health` as people use it, against daemons with answers from the test."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.agent.control.report import (
    FaultReport,
    HealthReport,
    HungCallReport,
    NpuReport,
    ResourceReport,
)

SEPARATED = FaultReport(
    code="80E01801",
    level="ManuallySeparateNPU",
    rule="2 times in 24 h",
    text="HBM ECC",
    since="2026-11-21T17:01:00Z",
)
SLOW = FaultReport(
    code="00000000", level="SubHealthFault", rule="why", text="", since="2026-11-21T18:00:00Z"
)
REPORT = HealthReport(
    watch="polling",
    refusal="not supported",
    taints=False,
    gaps=("card 9: booting",),
    hung_calls=(
        HungCallReport(function="read_health", device="npu-4", since="2026-11-21T19:00:00Z"),
        HungCallReport(function="init", device="", since="2026-11-21T19:00:01Z"),
    ),
    npus=(
        NpuReport(device="npu-0", level="NormalNPU", state="Healthy"),
        NpuReport(
            device="npu-3",
            level="ManuallySeparateNPU",
            state="Unhealthy",
            faults=(SEPARATED, SLOW),
            network="RoCE port: fault (5)",
            held_by=("ml/train",),
        ),
        NpuReport(
            device="npu-4",
            offered_as="module-2",
            level="NormalNPU",
            state="Unknown",
            unmonitored="no answer",
        ),
    ),
)
TABLE = """\
faults:    polled, because the Ascend driver does not report them: not supported
unhealthy NPUs: left out of the ResourceSlice, because the API server drops taints
hung call: read_health of npu-4 has not returned since 2026-11-21T19:00:00Z
hung call: init of the Ascend driver has not returned since 2026-11-21T19:00:01Z
missing:   card 9: booting

DEVICE             LEVEL                STATE      FAULT                 SINCE                 RULE             HELD BY
npu-0              NormalNPU            Healthy    -                     -                     -                -
npu-3              ManuallySeparateNPU  Unhealthy  80E01801 HBM ECC      2026-11-21T17:01:00Z  2 times in 24 h  ml/train
                   SubHealthFault                  00000000              2026-11-21T18:00:00Z  why
                   -                               RoCE port: fault (5)  -                     -
npu-4 of module-2  NormalNPU            Unknown    no answer             -                     -                -
"""  # noqa: E501 - as wide as people see it


class Answering(BaseHTTPRequestHandler):
    """Answers every request with the same, and keeps the requests."""

    asked: list[str]
    status: int
    text: str

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.text.encode())

    do_POST = do_GET  # noqa: N815 - the base class finds it by this name

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        """A unix socket's peer has no address."""
        return ""


@contextmanager
def daemon(path: Path, status: int, text: str) -> Iterator[list[str]]:
    """A server on a control socket; gives the requests that it got."""
    asked: list[str] = []
    handler = type("Handler", (Answering,), {"asked": asked, "status": status, "text": text})
    with UnixStreamServer(str(path), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def plugins() -> Iterator[Path]:
    """The kubelet's plugins folder with our own in it."""
    with TemporaryDirectory(prefix="npu-") as name:
        (Path(name) / "npu.huawei.com").mkdir()
        yield Path(name)


def run(plugins: Path, *words: str) -> int:
    """The command."""
    return main(["health", *words, f"--kubelet-plugins-directory-path={plugins}"])


def test_health_is_a_table_with_a_row_for_each_trouble(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row has device, level, state, fault, since, rule and holder; the header has the source."""
    path = plugins / "npu.huawei.com/control.sock"
    with daemon(path, 200, REPORT.model_dump_json(by_alias=True)):
        assert run(plugins) == 0

    assert capsys.readouterr().out == TABLE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"watch": "events"}, "faults:    reported by the Ascend driver as they happen"),
        ({"watch": "starting"}, "faults:    not watched yet"),
        ({"taints": True}, "unhealthy NPUs: tainted"),
        ({"taints": None}, "unhealthy NPUs: not published yet"),
        ({"npus": ()}, "\nno NPU\n"),
        (
            {"resources": (ResourceReport(name="a/b", devices=8, healthy=7, held=2),)},
            "resource:  a/b: 8 devices, 7 healthy, 2 held\n",
        ),
        (
            {"unserved": ("npu-0 by pod ml/train",)},
            "held:      npu-0 by pod ml/train, which no resource lists now\n",
        ),
        (
            {"waiting": {"npu-3": "to a/b, but it is held by claim ml/train"}},
            "moving:    npu-3 is to go to a/b, but it is held by claim ml/train\n",
        ),
    ],
)
def test_the_header_says_what_is_in_force(
    plugins: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], words: str
) -> None:
    """It says events or polling, taints or absence."""
    report = REPORT.model_copy(update=change)
    path = plugins / "npu.huawei.com/control.sock"
    with daemon(path, 200, report.model_dump_json(by_alias=True)):
        assert run(plugins) == 0

    assert words in capsys.readouterr().out


def test_health_asks_for_no_name_of_the_node(
    plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the daemon here, however the host is called."""
    monkeypatch.setattr(platform, "node", lambda: "my_host")
    monkeypatch.setenv("NPU_DRA_NODE_NAME", "my_node")
    with daemon(
        plugins / "npu.huawei.com/control.sock", 200, REPORT.model_dump_json(by_alias=True)
    ):
        assert run(plugins) == 0


def test_json_is_what_the_daemon_said(plugins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output includes fields of a newer daemon."""
    said = {**REPORT.model_dump(by_alias=True), "newer": 1}
    with daemon(plugins / "npu.huawei.com/control.sock", 200, json.dumps(said)):
        assert run(plugins, "-o", "json") == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["newer"] == 1
    assert shown["npus"][1]["heldBy"] == ["ml/train"]


def test_a_release_goes_to_every_instance(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """During an update each of the two instances has its own memory."""
    folder = plugins / "npu.huawei.com"
    with ExitStack() as stack:
        old = stack.enter_context(daemon(folder / "control-a.sock", 409, "nothing to release"))
        new = stack.enter_context(daemon(folder / "control-b.sock", 200, "npu-3 is released"))
        assert run(plugins, "release", "npu-3") == 0

    assert old == new == ["POST /release?device=npu-3"]
    assert capsys.readouterr().out == "npu-3 is released\n"


def test_health_is_asked_of_the_instance_that_publishes(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two instances the older one is asked; a dead one is skipped."""
    folder = plugins / "npu.huawei.com"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "control-0.sock"))
    os.utime(folder / "control-0.sock", (1, 1))
    with ExitStack() as stack:
        for name, age in (("a", 9), ("b", 5)):
            path = folder / f"control-{name}.sock"
            report = REPORT.model_copy(update={"refusal": name})
            stack.enter_context(daemon(path, 200, report.model_dump_json(by_alias=True)))
            os.utime(path, (age, age))
        assert run(plugins) == 0

    assert "does not report them: b\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "answer", "code", "said"),
    [
        ((), (500, ""), 1, "the daemon answers 500: "),
        ((), (200, "{}"), 1, "the daemon is of another version: "),
        (
            ("release", "npu-9"),
            (404, "no NPU 'npu-9' on this node"),
            1,
            "no NPU 'npu-9' on this node",
        ),
        (("release",), (200, ""), 2, "'release' is not `release DEVICE`"),
        (("free", "npu-3"), (200, ""), 2, "'free npu-3' is not `release DEVICE`"),
    ],
)
def test_a_refusal_is_one_line(  # noqa: PLR0917 - pytest passes them by name
    plugins: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    answer: tuple[int, str],
    code: int,
    said: str,
) -> None:
    """It has the daemon's error, with exit code 1, or that of the command line."""
    with daemon(plugins / "npu.huawei.com/control.sock", *answer):
        assert run(plugins, *words) == code

    error = capsys.readouterr().err
    assert error.startswith(f"npu-dra health: {said}")
    assert error.count("\n") == 1


def test_without_a_daemon_the_message_says_what_to_do(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder or the socket is missing, or no daemon listens on the socket."""
    assert run(plugins / "nowhere") == 1
    assert "no daemon runs here" in capsys.readouterr().err
    assert run(plugins) == 1
    assert "ask in its pod (kubectl exec)" in capsys.readouterr().err
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(plugins / "npu.huawei.com/control.sock"))
    assert run(plugins) == 1
    assert "the daemon has ended or is being started" in capsys.readouterr().err
