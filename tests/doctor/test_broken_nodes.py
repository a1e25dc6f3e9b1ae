"""What `npu-dra doctor` says of nodes that are broken in one way each, and of one that is not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dev.rig.boards import a3, die
from dev.rig.doctor_nodes import ASCEND_BY_DEFAULT, DRIVER, POD, SESSION, Node
from tests.claims.node import npu
from tests.holds.entries import entry, of_partition
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.holds.encoding import encode
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, ChipFamily
from trio_npu_dra.tools.doctor import own_state
from trio_npu_dra.tools.doctor.chips import (
    Chips,
    Ours,
    judge_division,
    judge_root_info,
    problem_of_root_info,
)

ROOT_INFO_OF_TWO = (
    '{"version": "2.0", "topo_file_path": "/usr/local/Ascend/driver/topo/950/a.json", '
    '"rank_list": [{"device_id": 0}, {"device_id": 1}]}'
)
OF_910B = '{"version": "1.0", "rank_list": [{"device_id": "0"}]}'


def test_healthy_node_has_no_findings(healthy: Node) -> None:
    """Each line says that all is well, but for the API server, which is unknown."""
    code, text = healthy.doctor()

    assert code == 0
    assert "ok           NPUs in use        none is in use\n" in text
    assert (
        "ok           container runtime  containerd (/etc/containerd/config.toml) has CDI on"
        in text
    )
    assert text.endswith("\nproblems: 0, warnings: 0, not checked: 1\n")
    levels = {check: [level for level, _ in found] for check, found in healthy.findings().items()}
    assert levels.pop("API server") == ["not checked"]
    assert levels == {key: ["ok"] for key in levels}
    assert len(levels) == 9


def test_huaweis_device_plugin_runs(healthy: Node) -> None:
    """Its socket, and the pods that it gave NPUs to."""
    healthy.listen(healthy.places.device_plugins / "Ascend910.sock")
    healthy.run_huaweis_pods("huawei.com/Ascend910", "Ascend910-3")

    code, text = healthy.doctor()

    assert code == 1
    assert (
        "problem      device plugins     another device plugin for NPUs (Huawei's, or HAMi's) "
        "listens on Ascend910.sock: it hands out the NPUs that this driver hands out\n"
        "    -> Keep its DaemonSet off this node, or this driver's.\n"
        "problem                         2 pods still use "
        "huawei.com/Ascend910 from another plugin; this driver does not account for them\n"
    ) in text
    assert text.endswith("\nproblems: 2, warnings: 0, not checked: 1\n")


def test_ascend_runtime_is_the_default_and_cdi_is_off(healthy: Node) -> None:
    """As Huawei's installer leaves a containerd 1.7."""
    healthy.write("etc/containerd/config.toml", ASCEND_BY_DEFAULT)

    code, text = healthy.doctor()

    assert code == 1
    assert (
        "problem      container runtime  CDI is off in containerd (/etc/containerd/config.toml: "
        "enable_cdi = false): containers get no NPU\n"
        '    -> Set enable_cdi = true in [plugins."io.containerd.grpc.v1.cri"] of '
        "/etc/containerd/config.toml, and restart containerd.\n"
        "warning                         the Ascend runtime is the default of containerd (ascend "
        "in /etc/containerd/config.toml): "
    ) in text
    assert text.endswith("\nproblems: 1, warnings: 1, not checked: 1\n")


def test_another_dra_driver_has_the_same_name(healthy: Node) -> None:
    """Its registration belongs to no instance of this driver; other names are reported too."""
    places = healthy.places
    healthy.listen(places.registrations / f"{DRIVER}-reg.sock")
    healthy.listen(places.registrations / "ascend.project-hami.io-reg.sock")
    healthy.listen(places.registrations / "npu.example.com-reg.sock")
    healthy.listen(places.registrations / "ebs.csi.example.com-reg.sock")
    healthy.listen(places.plugins / "ascend.project-hami.io/dra.sock")

    code, text = healthy.doctor()

    assert code == 1
    assert (
        f"problem      DRA drivers        another driver is registered as {DRIVER} "
        f"({DRIVER}-reg.sock), which is also the name of Huawei's own DRA driver"
    ) in text
    assert (
        "the driver ascend.project-hami.io serves NPUs here too (ascend.project-hami.io-reg.sock "
        "and dra.sock)"
    ) in text
    assert "\nwarning                         the driver npu.example.com runs here (" in text
    assert "ebs" not in text


def test_npus_are_in_use_outside_of_kubernetes(healthy: Node) -> None:
    """By a person's process; those of pods without a claim, and unseen ones, are told apart."""
    healthy.run_program(4711, "/usr/bin/python3", cgroup=SESSION)
    healthy.run_program(300, "/usr/bin/python3", cgroup=POD)
    healthy.use(3, 4711)
    healthy.use(4, 300, 301)
    healthy.use(5, 0)
    healthy.use(6, 0)

    code, text = healthy.doctor()

    assert code == 1
    assert (
        "problem      NPUs in use        npu-3 is used outside of Kubernetes, by process 4711 "
        "(python3)\n    -> End that process"
    ) in text
    unseen = "the users of npu-4 (process 301), npu-5 and npu-6 cannot be seen from here"
    assert f"not checked                     {unseen}" in text
    astray = "npu-4 (process 300): used by a pod's process, and held by no claim or pod"
    assert f"problem                         {astray}\n" in text


def test_a_process_cannot_write_findings(healthy: Node) -> None:
    """Its name is its own; what would not show on a terminal is escaped."""
    healthy.run_program(4711, "\x1b[2J\nok\u202e", cgroup=SESSION)
    healthy.use(3, 4711)

    _, text = healthy.doctor()

    assert r"by process 4711 (\u001b[2J\nok\u202e)" in text


def test_ascend_driver_is_missing(healthy: Node) -> None:
    """The cards are on the PCI bus, and no library can ask them."""
    shutil.rmtree(healthy.root / "usr/local")

    code, text = healthy.doctor()

    assert code == 1
    assert "problem      Ascend driver      libdcmi.so cannot be loaded: looked in " in text
    assert "    -> Install or repair the Ascend driver of this node; npu-smi info must" in text
    assert "NPUs in use" not in text


async def hold(node: Node) -> None:
    """Two claims have an NPU each, as the daemon would note it."""
    ledger = Ledger(node.places.state)
    async with ledger.exclusive():
        ledger.put(entry("uid-a"))
        ledger.put(entry("uid-b", 1))


def test_a_pod_with_several_npus_is_named_once(healthy: Node) -> None:
    """By what it is: a claim may have the same name."""

    async def give() -> None:
        ledger = Ledger(healthy.places.state)
        async with ledger.exclusive():
            for number in (0, 1):
                device = ResourceDevice(resource="huawei.com/Ascend910", chip=npu(number))
                ledger.put(device.entry(namespace="ml", pod="train"))

    trio.run(give)
    healthy.run_program(300, "/usr/bin/python3", cgroup=POD)
    healthy.use(1, 300)
    assert healthy.findings()["NPUs in use"] == [("ok", "by pods alone: npu-1")]
    (_, text), *_ = healthy.findings()["this driver"]
    assert text == "the daemon runs; NPUs are held by pod ml/train"


FILE = f"{DRIVER}-npu_uid-b.json"


def test_own_state_is_broken(healthy: Node) -> None:
    """A record that cannot be read, CDI files that are missing, left over, or name what is gone."""
    trio.run(hold, healthy)
    places = healthy.places
    (places.state / "claims/uid-d.json").write_text("{")
    nodes = '{"devices": [{"containerEdits": {"deviceNodes": [{"hostPath": "/dev/davinci77"}]}}]}'
    for uid in ("uid-b", "uid-z"):
        file = healthy.write(f"etc/cdi/{DRIVER}-npu_{uid}.json", nodes)
        file.chmod(0o644)

    found = dict.fromkeys(healthy.findings()["this driver"])

    assert [(level, text.partition(": ")[0]) for level, text in found] == [
        ("problem", "the record of claim uid-d cannot be read and is set aside"),
        ("problem", "claim default/uid-a has no CDI file, or a wrong one"),
        ("warning", f"the CDI file {DRIVER}-npu_uid-z.json is of a claim that is not prepared"),
        (
            "problem",
            f"the CDI file {FILE} names /dev/davinci77, which the host does not have",
        ),
    ]


def test_own_folder_is_a_file(healthy: Node) -> None:
    """No claim can be prepared."""
    shutil.rmtree(healthy.places.state)
    healthy.places.state.touch()

    assert healthy.doctor()[0] == 1
    assert healthy.findings()["this driver"] == [
        (
            "problem",
            f"/var/lib/kubelet/plugins/{DRIVER} is not a folder: no claim can be prepared",
        )
    ]


def test_daemon_does_not_run_or_runs_twice(healthy: Node) -> None:
    """Neither keeps a pod from its NPU for sure."""
    healthy.run_driver("pod-2")
    assert healthy.findings()["this driver"] == [("warning", "2 daemons run here")]

    for folder in (healthy.places.state, healthy.places.registrations):
        for path in folder.iterdir():
            path.unlink()
    code, text = healthy.doctor()
    assert "warning      this driver        the daemon does not run here\n" in text
    assert code == 0


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("dev/davinci_manager", "/dev/davinci_manager is missing on the node"),
        ("dev/hisi_hdc", "/dev/hisi_hdc is missing on the node"),
        ("dev/davinci3", "accelerator 0000:02:00.0 is not listed"),
        ("usr/local/Ascend/driver/lib64", "/usr/local/Ascend/driver/lib64/ is missing on the node"),
    ],
)
def test_what_containers_need_is_missing(healthy: Node, gone: str, said: str) -> None:
    """No pod could start; the Ascend driver does not list a chip without its own node."""
    library = healthy.root / "usr/local/dcmi/libdcmi.so"
    (healthy.root / gone).rename(healthy.root / "usr/local/Ascend/driver/gone")
    if not library.exists():
        library.unlink()
        library.symlink_to("../Ascend/driver/gone/libdcmi.so")

    ((level, text),) = healthy.findings()["Ascend driver"]

    assert level == "problem"
    assert text.startswith(said)


def test_paths_of_the_wrong_kind_are_named(healthy: Node) -> None:
    """As a container runtime leaves them when a file that it should mount is missing."""
    for path in ("usr/local/bin/npu-smi", "etc/hccn.conf"):
        (healthy.root / path).unlink(missing_ok=True)
        (healthy.root / path).mkdir(parents=True)
    assert healthy.findings()["Ascend driver"] == [
        ("warning", f"/{path} is of the wrong kind: containers do not get it")
        for path in ("etc/hccn.conf", "usr/local/bin/npu-smi")
    ]


def test_npus_were_cut_and_shared_by_hand(healthy: Node) -> None:
    """What others did to NPUs is to be known."""
    assert healthy.board is not None
    with healthy.board.control() as control:
        control.set_share(2, enabled=True)
        vnpu = control.create_vnpu(5, "vir05_1c_8g")

    code, text = healthy.doctor()

    assert code == 0
    assert "warning      NPUs divided       several containers may open npu-2 at once" in text
    assert f"warning                         npu-5 was cut into vNPUs by hand ({vnpu}): " in text


def test_what_this_driver_did_to_npus_is_no_finding(healthy: Node) -> None:
    """Nor a policy of the node, which is reported."""
    chips = {"version": 1, "chips": ["/dev/davinci2", "other"]}
    board = a3(replace(die(2), uuid=None, device_share=True), die(5, vnpus=(140, 141)))
    (healthy.places.state / "share-flags.json").write_text(json.dumps(chips))
    records = healthy.places.state / "claims"
    records.mkdir()
    (records / "uid-c.json").write_bytes(encode(of_partition("uid-c", 150)))  # created manually
    ours = own_state.look(healthy.places).ours
    shared = {"/dev/davinci2", "other"}
    assert ours == Ours(nodes={"/dev/davinci0"}, vnpus=set(), shared=shared)

    (said,) = judge_division(
        Chips(has_hardware=True, board=board), replace(ours, vnpus={140, 141, 142})
    )

    assert said.text == "none was cut or shared by hand; multi-die policy union"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, []),
        (OF_910B, ["warning"]),
        (ROOT_INFO_OF_TWO, ["ok"]),
    ],
)
def test_the_root_info_of_a_950_is_of_its_npus(
    tmp_path: Path, text: str | None, said: list[str]
) -> None:
    """HCCL of other NPUs does not read it, and needs none."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "usr/local/Ascend/driver/topo/950").mkdir(parents=True)
    (tmp_path / "usr/local/Ascend/driver/topo/950/a.json").touch()
    if text is not None:
        (tmp_path / "etc/hccl_rootinfo.json").write_text(text)
    host = Host(host_root=tmp_path)
    for family, expected in ((ChipFamily.ASCEND_950, said), (ChipFamily.ASCEND_910_A3, [])):
        chips = tuple(replace(die(number), family=family) for number in (0, 1))
        found = Chips(has_hardware=True, root_info=problem_of_root_info(host, Board(chips=chips)))
        findings = [*judge_root_info(found)]
        assert [finding.level for finding in findings] == expected
        assert text != OF_910B or all("version is '1.0', not '2.0'" in one.text for one in findings)


def test_node_without_npus(healthy: Node) -> None:
    """Nothing is wrong with it, and its NPUs are not asked for users."""
    for folder in ("usr/local", "sys", "dev"):
        shutil.rmtree(healthy.root / folder)

    code, text = healthy.doctor()

    assert code == 0
    assert "ok           Ascend driver      this node has neither Ascend NPUs nor an " in text
    assert {"NPUs in use", "NPUs divided"}.isdisjoint(healthy.findings())


def test_wrong_flag_has_an_exit_code_of_its_own(
    healthy: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script does not take it for a problem of the node."""
    assert healthy.doctor("--driver-name=A B") == (2, "")
    assert "npu-dra doctor: --driver-name=A B: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("function", "check", "level"),
    [
        ("dcmi_init", "Ascend driver", "problem"),
        ("dcmi_get_device_resource_info", "NPUs in use", "not checked"),
    ],
)
def test_ascend_driver_refuses(healthy: Node, function: str, check: str, level: str) -> None:
    """All answers, or those about processes."""
    assert healthy.board is not None
    with healthy.board.control() as control:
        control.set_return_code(function, -8005)

    found = healthy.findings()[check]

    assert {each[0] for each in found} == {level}
    assert all(f"{function} returned -8005" in text for _, text in found)


def test_half_written_files_are_reported(healthy: Node) -> None:
    """As a power cut leaves them."""
    trio.run(hold, healthy)
    for uid in ("uid-a", "uid-b"):
        healthy.write(f"etc/cdi/{DRIVER}-npu_{uid}.json", "{").chmod(0o644)
    (healthy.places.state / "share-flags.json").write_text("[]")

    assert healthy.findings()["this driver"] == [
        ("not checked", "which share flags this driver has set cannot be read")
    ]

    (healthy.places.state / "share-flags.json").unlink()
    said = healthy.findings()["this driver"]
    assert [(level, text.partition(":")[0]) for level, text in said] == [
        ("problem", f"the CDI file {DRIVER}-npu_{uid}.json is not whole")
        for uid in ("uid-a", "uid-b")
    ]
