"""What is understood of the configuration of container runtimes, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.rig.doctor_nodes import Node
from trio_npu_dra.tools.doctor.finding import Level
from trio_npu_dra.tools.doctor.runtimes import check

GRPC = '[plugins."io.containerd.grpc.v1.cri"]\n'
RUNTIME = '[plugins."io.containerd.cri.v1.runtime"]\n'
ASCEND = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"
FILE = "etc/containerd/config.toml"


@pytest.fixture
def host(tmp_path: Path) -> Node:
    """A host of which nothing but files is there."""
    (tmp_path / "etc").mkdir()
    return Node(tmp_path, None)


def said(host: Node, runtime: str = "") -> list[tuple[str, str]]:
    """Level and beginning of each finding."""
    findings = check(host.places, runtime)
    return [(str(finding.level.value), finding.text.partition(" (")[0]) for finding in findings]


@pytest.mark.parametrize(
    ("config", "runtime", "expected"),
    [
        ("version = 3\n", "", ("ok", "containerd")),
        ("version = 2\n", "containerd://2.1.6", ("ok", "containerd")),
        (f"version = 2\n{GRPC}enable_cdi = true\n", "", ("ok", "containerd")),
        (f"version = 2\n{GRPC}enable_cdi = true\n", "containerd://1.7.29", ("ok", "containerd")),
        ("version = 2\n", "containerd://1.7.29", ("problem", "CDI is off in containerd")),
        (
            f"version = 3\n{RUNTIME}enable_cdi = false\n",
            "",
            ("problem", "CDI is off in containerd"),
        ),
        ("[plugins.cri]\nenable_cdi = false\n", "", ("problem", "CDI is off in containerd")),
        (
            "version = 2\n",
            "containerd://1.6.20",
            ("problem", "containerd://1.6.20 knows no CDI devices"),
        ),
        (
            f'version = 3\n{RUNTIME}cdi_spec_dirs = ["/run/cdi"]\n',
            "",
            ("problem", "containerd does not look for CDI specs in /etc/cdi, only in /run/cdi"),
        ),
    ],
)
def test_cdi_of_containerd(
    host: Node, config: str, runtime: str, expected: tuple[str, str]
) -> None:
    """By file of each version, and by containerd's version where the file does not say."""
    host.write(FILE, config)

    assert said(host, runtime) == [expected]


def test_cdi_is_not_known_without_containerds_version(host: Node) -> None:
    """A file of version 2 serves containerd 1.7, where CDI is off, and 2.x, where it is on."""
    host.write(FILE, "version = 2\n")

    ((level, text),) = said(host)

    assert level == "warning"
    assert text.startswith("CDI is off if this is containerd 1.7")


def test_imported_files_win(host: Node) -> None:
    """They may be of another version, and import others; none is read twice."""
    host.write(FILE, f'version = 2\nimports = ["more/*.toml"]\n{GRPC}enable_cdi = false\n')
    host.write("etc/containerd/more/a.toml", f"version = 3\n{RUNTIME}enable_cdi = true\n")
    host.write("etc/containerd/more/b.toml", 'imports = ["/etc/containerd/config.toml"]\n')
    host.write("etc/containerd/more/b.conf", f"version = 2\n{GRPC}enable_cdi = false\n")

    assert said(host) == [("ok", "containerd")]


def test_the_main_file_says_which_version_it_is_for(host: Node) -> None:
    """Version 3 came with containerd 2.0, where CDI is on, whatever files it imports."""
    host.write(FILE, 'version = 3\nimports = ["more/*.toml"]\n')
    host.write("etc/containerd/more/old.toml", "version = 2\n")

    assert said(host) == [("ok", "containerd")]


@pytest.mark.parametrize(
    "config",
    [
        (
            "version = 3\n"
            '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]\n'
            f'BinaryName = "{ASCEND}"\n'
        ),
        (
            'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\n'
            'default_runtime_name = "ascend"\n'
            "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.ascend.options]\n"
            f'BinaryName = "{ASCEND}"\n'
        ),
        (
            f"version = 2\n{GRPC}enable_cdi = true\n"
            '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
            'runtime_type = "io.containerd.runtime.v1.linux"\n'
            f'[plugins."io.containerd.runtime.v1.linux"]\nruntime = "{ASCEND}"\n'
        ),
    ],
)
def test_ascend_runtime_is_the_default(host: Node, config: str) -> None:
    """By its own name, as runc's binary, or as the binary of all, as guides had it once."""
    host.write(FILE, config)

    assert said(host) == [("warning", "the Ascend runtime is the default of containerd")]


def test_ascend_runtime_beside_runc_is_reported(host: Node) -> None:
    """Pods that name it by a RuntimeClass do no harm."""
    section = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.ascend.options]'
    host.write(FILE, f'version = 3\n{section}\nBinaryName = "{ASCEND}"\n')

    (finding,) = check(host.places, "")

    assert finding.level is Level.OK
    assert "the Ascend runtime is there as ascend, not as the default" in finding.text


def test_crio_has_cdi_and_its_dropins_win(host: Node) -> None:
    """Huawei's installer writes a drop-in."""
    host.write("etc/crio/crio.conf", '[crio.runtime]\ndefault_runtime = "crun"\n')
    assert said(host) == [("ok", "CRI-O")]

    host.write(
        "etc/crio/crio.conf.d/99-ascend-runtime.conf",
        '[crio.runtime]\ndefault_runtime = "ascend"\ncdi_spec_dirs = ["/var/run/cdi"]\n'
        f'[crio.runtime.runtimes.ascend]\nruntime_path = "{ASCEND}"\n',
    )
    assert said(host, "cri-o://1.34.0") == [
        ("problem", "CRI-O does not look for CDI specs in /etc/cdi, only in /var/run/cdi"),
        ("warning", "the Ascend runtime is the default of CRI-O"),
    ]


def test_dockers_default_matters_only_to_docker(host: Node) -> None:
    """Its own containerd has no CRI; its containers may take NPUs all the same."""
    socket = "/var/run/docker/containerd/containerd.toml"
    host.run_program(10, "/usr/bin/containerd")
    host.run_program(11, "/usr/bin/containerd", "--config", socket)
    host.write(FILE, "version = 3\n")
    host.write(socket.removeprefix("/"), 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    host.write(
        "etc/docker/daemon.json",
        f'{{"default-runtime": "ascend", "runtimes": {{"ascend": {{"path": "{ASCEND}"}}}}}}',
    )

    assert said(host) == [
        ("ok", "containerd"),
        ("warning", "the Ascend runtime is the default of Docker"),
    ]


def test_file_that_a_running_containerd_was_given_counts(host: Node) -> None:
    """Processes of containers, which have roots of their own, do not."""
    host.run_program(10, "/usr/bin/containerd", "--config=/opt/containerd.toml")
    host.run_program(11, "/usr/bin/containerd", "--config=/opt/other.toml")
    (host.root / "proc/11/root").unlink()
    host.write("opt/containerd.toml", "version = 3\n")
    host.write("opt/other.toml", f"version = 3\n{RUNTIME}enable_cdi = false\n")

    assert said(host) == [("ok", "containerd")]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (FILE, "version = \n"),
        (FILE, f'version = 3\n{RUNTIME}enable_cdi = "yes"\n'),
        ("etc/docker/daemon.json", "[]"),
        ("etc/docker/daemon.json", "{"),
    ],
)
def test_broken_file_is_not_judged(host: Node, file: str, text: str) -> None:
    """It is named; no other check suffers."""
    host.write(file, text)

    ((level, what),) = said(host)

    assert level == "not checked"
    assert what.startswith(f"/{file}: ")


def test_no_file_at_all(host: Node) -> None:
    """Then all is as it comes with the runtime, if that is known."""
    assert said(host)[0][0] == "not checked"
    assert said(host, "containerd://2.1.6") == [
        ("ok", "containerd without a file of its own has CDI on")
    ]
    assert said(host, "containerd://1.7.29") == [("problem", "CDI is off in containerd")]


CRI = "unix:///run/containerd/containerd.sock"
DOCKER = "unix:///var/run/cri-dockerd.sock"


@pytest.mark.parametrize(
    ("runtime", "endpoint", "other"),
    [
        ("docker://28.0.0", "", "docker://28.0.0"),
        ("isulad://2.1.5", "", "isulad://2.1.5"),
        ("", "unix:///var/run/cri-dockerd.sock", "unix:///var/run/cri-dockerd.sock"),
        ("", "unix:///var/run/isulad.sock", "unix:///var/run/isulad.sock"),
        ("", "unix:///run/iSulad.sock", "unix:///run/iSulad.sock"),
        ("", "/run/docker.sock", "/run/docker.sock"),
        ("", "unix:///run/k3s/containerd/containerd.sock", ""),
        ("", "unix:///run/docker/containerd/containerd.sock", ""),
        ("containerd://2.1.6", "unix:///var/run/cri-dockerd.sock", ""),  # of another kubelet
    ],
)
def test_pods_of_other_runtimes_have_no_npus(
    host: Node, runtime: str, endpoint: str, other: str
) -> None:
    """Whatever containerd is beside them, as Docker has one; as a flag or in the configuration."""
    host.write(FILE, "version = 3\n")
    text = f"the kubelet starts pods with {other}, on which this driver does not work: such pods "
    expected = ("problem", f"{text}may run without their NPU, and without an error")
    host.write("var/lib/kubelet/config.yaml", f"containerRuntimeEndpoint: '{endpoint}'\n")
    found = said(host, runtime)
    assert found == [expected if other else ("ok", "containerd")]
    flag = "--container-runtime-endpoint"
    host.write("var/lib/kubelet/config.yaml", f"containerRuntimeEndpoint: {DOCKER}\n")
    host.run_program(20, "/usr/bin/kubelet", f"{flag}={DOCKER}", f"{flag}={endpoint or CRI}")
    assert said(host, runtime) == found, "the last flag wins"


def test_a_runtime_of_a_name_that_nobody_knows_is_not_checked(host: Node) -> None:
    """It may be a link to containerd's socket."""
    host.write(FILE, "version = 3\n")
    host.run_program(20, "/usr/bin/kubelet", "--container-runtime-endpoint=/run/cri.sock")
    assert [level for level, _ in said(host)] == ["not checked", "ok"]
