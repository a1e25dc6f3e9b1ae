"""The manifests have names that people rely on, rights that the driver needs, valid flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from trio_npu_dra import __version__
from trio_npu_dra.agent.daemon.nursery import END_SECONDS, GRACE_SECONDS
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.devices.taints import TaintEffect, TaintPolicy
from trio_npu_dra.agent.flags import add_flags, environment_variable, flag
from trio_npu_dra.agent.settings import MeetingSettings, Settings
from trio_npu_dra.ascend.model import ChipHealth, Fault, FaultLevel
from trio_npu_dra.kit.base.log_thread import EXIT_SECONDS
from trio_npu_dra.kit.kubelet.probes import CALL_SECONDS

ROOT = Path(__file__).parent.parent
K8S = ROOT / "k8s"
NAME = "ascend-npu-dra-kubeletplugin"
DRIVER = "npu.huawei.com"


def load(*folders: str) -> dict[tuple[str, str], Any]:
    """All objects of some folders below k8s/, by kind and name."""
    documents = [
        document
        for folder in folders
        for file in sorted((K8S / folder).glob("*.yaml"))
        if file.name != "kustomization.yaml"
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def kustomization(folder: str) -> Any:
    """The kustomization.yaml of a folder below k8s/."""
    return yaml.safe_load((K8S / folder / "kustomization.yaml").read_text(encoding="utf-8"))


def pod_spec(objects: dict[tuple[str, str], Any]) -> Any:
    """The pod spec of the DaemonSet."""
    return objects["DaemonSet", NAME]["spec"]["template"]["spec"]


def test_objects_have_the_guides_names() -> None:
    """People who follow the guide find the same objects."""
    expected = {
        ("Namespace", "ascend-dra"),
        ("ServiceAccount", NAME),
        ("ClusterRole", NAME),
        ("ClusterRoleBinding", NAME),
        ("DaemonSet", NAME),
        ("DeviceClass", DRIVER),
        ("ResourceClaim", "npu-resource"),
        ("ResourceClaimTemplate", "npu-resource-template"),
        ("Pod", "npu-test-pod"),
    }

    assert expected <= load("base", "examples").keys()


def test_image_is_named_in_one_place() -> None:
    """The tag is this version; manifests name the image without it, also in the overlay."""
    (image,) = kustomization("base")["images"]
    (container,) = pod_spec(load("base"))["containers"]
    (board,) = pod_spec(load("overlays/simulator"))["initContainers"]

    assert image == {"name": "docker.io/library/dra-npu", "newTag": __version__}
    assert container["image"] == board["image"] == image["name"]
    (replacement,) = kustomization("overlays/simulator")["replacements"]
    (target,) = replacement["targets"]
    spec = "spec.template.spec"
    assert (
        replacement["source"]["fieldPath"] == f"{spec}.containers.[name={container['name']}].image"
    )
    assert target["fieldPaths"] == [f"{spec}.initContainers.[name={board['name']}].image"]


def test_every_file_is_listed() -> None:
    """`kubectl apply -k` applies every manifest of the base."""
    files = {file.name for file in (K8S / "base").glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization("base")["resources"])


def test_container_can_write_no_more_than_it_must() -> None:
    """Its own file system is read-only, and so is the host's except for its working folders."""
    (container,) = pod_spec(load("base"))["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {
        mount["mountPath"]
        for mount in container["volumeMounts"]
        if not mount.get("readOnly", False)
    }
    kubelet = "/var/lib/kubelet"
    folders = {f"{kubelet}/{name}" for name in ("plugins_registry", "plugins", "device-plugins")}
    assert writable == {*folders, "/etc/cdi", "/dev"}


def test_node_agent_reads_no_secret() -> None:
    """No mount and no variable has content of a Secret or ConfigMap."""
    spec = pod_spec(load("base"))
    (container,) = spec["containers"]
    assert {"name", "hostPath"} == {key for volume in spec["volumes"] for key in volume}
    assert "envFrom" not in container
    sources = {key for variable in container["env"] for key in variable.get("valueFrom", {})}
    assert sources <= {"fieldRef"}


def test_no_container_leaves_a_file_in_a_folder_of_the_node() -> None:
    """The termination message file, which is in /dev by default, is in none of its mounts."""
    base, board = pod_spec(load("base")), pod_spec(load("overlays/simulator"))
    containers = [*base["containers"], *board["initContainers"]]
    assert len(containers) == 2
    for each in containers:
        path = Path(each.get("terminationMessagePath", "/dev/termination-log"))
        mounts = {Path(mount["mountPath"]) for mount in each["volumeMounts"]}
        assert mounts.isdisjoint(path.parents)


def test_network_policy_opens_the_one_port() -> None:
    """It selects the DaemonSet's pods, and lets in only one namespace."""
    objects = load("base")
    policy = objects["NetworkPolicy", NAME]["spec"]
    template = objects["DaemonSet", NAME]["spec"]["template"]
    (container,) = pod_spec(objects)["containers"]

    assert policy["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    (rule,) = policy["ingress"]
    assert [each["port"] for each in rule["ports"]] == [
        each["containerPort"] for each in container["ports"]
    ]
    assert policy["egress"] == [{}], "no manifest knows the port of an API server"
    (source,) = rule["from"]
    (label,) = source["namespaceSelector"]["matchLabels"]
    assert label == "kubernetes.io/metadata.name", "the label that every namespace has"


def test_overlay_opens_the_port() -> None:
    """It removes the list of clients, and so lets in everyone, at this port only."""
    (patch,) = kustomization("overlays/open-metrics")["patches"]
    (change,) = yaml.safe_load(patch["patch"])
    policy = load("base")["NetworkPolicy", patch["target"]["name"]]
    *place, last = change["path"].strip("/").split("/")
    for step in place:
        policy = policy[int(step) if step.isdigit() else step]

    assert (patch["target"]["kind"], change["op"], last) == ("NetworkPolicy", "remove", "from")
    assert policy.keys() == {"from", "ports"}


@pytest.mark.parametrize("name", ["all-npus", "some-npus", "labelled-nodes"])
def test_patches_of_stages_are_about_our_daemonset(name: str) -> None:
    """They name what is there, and say what the driver understands."""
    patch = yaml.safe_load((K8S / f"overlays/device-plugin/{name}.yaml").read_text("utf-8"))
    ours = load("base")["DaemonSet", NAME]
    assert patch["metadata"] == {key: ours["metadata"][key] for key in ("name", "namespace")}
    for container in pod_spec({("DaemonSet", NAME): patch}).get("containers", []):
        assert container["name"] == pod_spec(load("base"))["containers"][0]["name"]
        (variable,) = container["env"]
        assert variable["name"] == environment_variable("device_plugin")
        assert Selection.parse(variable["value"])


def test_one_label_says_who_serves_a_node() -> None:
    """Ours or another agent: the patches ask for two values of one label."""
    wanted = [
        yaml.safe_load((K8S / f"overlays/device-plugin/{name}.yaml").read_text("utf-8"))
        for name in ("labelled-nodes", "other-agents")
    ]
    (ours, others) = (each["spec"]["template"]["spec"]["nodeSelector"] for each in wanted)
    assert ours.keys() == others.keys()
    assert ours != others


def test_the_daemonsets_flags_exist() -> None:
    """The image's entrypoint understands every argument of the DaemonSet."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    add_flags(parser, Settings)
    (container,) = pod_spec(load("base"))["containers"]

    flags = parser.parse_args(container["args"])

    assert flags.driver_name == DRIVER
    assert [int(flags.http_port)] == [each["containerPort"] for each in container["ports"]]


def test_commands_in_the_pod_know_its_node() -> None:
    """Its name is in the environment: `kubectl exec` runs no command with the DaemonSet's flags."""
    (container,) = pod_spec(load("base"))["containers"]
    variables = {each["name"]: each.get("valueFrom") for each in container["env"]}

    node_name = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert variables[environment_variable("node_name")] == node_name
    assert not any(argument.startswith("--node-name") for argument in container["args"])


@pytest.mark.parametrize("folder", ["base", "overlays/simulator"])
def test_commands_in_the_pod_see_the_host(folder: str) -> None:
    """Where it is mounted is in the environment too; a flag of a patch of the DaemonSet wins."""
    (container,) = pod_spec(load("base"))["containers"]
    (patched,) = pod_spec(load(folder))["containers"]
    variables = {each["name"]: each.get("value", "") for each in container["env"] + patched["env"]}
    del variables[environment_variable("node_name")]
    roots = ("host_root", "dev_root", "sysfs_root")
    sysfs = {"base": "/host/sys", "overlays/simulator": "/var/lib/trio-npu-dra/simulator/sys"}

    settings = MeetingSettings.load({}, variables)
    wanted = [Path("/host"), Path("/host/dev"), Path(sysfs[folder])]
    assert [getattr(settings, name) for name in roots] == wanted
    assert MeetingSettings.load({"sysfs_root": "/a"}, variables).sysfs_root == Path("/a")
    given = {argument.partition("=")[0] for argument in container["args"]}
    assert given.isdisjoint(map(flag, roots))


def test_probes_ask_the_pages() -> None:
    """They use the port's name, and have more time than the pages' own calls take."""
    (container,) = pod_spec(load("base"))["containers"]
    (port,) = container["ports"]
    pages = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    for probe, path in pages.items():
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
        assert container[probe]["timeoutSeconds"] > CALL_SECONDS


def test_slow_start_is_not_taken_for_a_stuck_daemon() -> None:
    """A start may take several times its second of CPU at the requested share of CPU."""
    (container,) = pod_spec(load("base"))["containers"]
    seconds = {
        probe: container[probe]["periodSeconds"] * container[probe]["failureThreshold"]
        for probe in ("startupProbe", "livenessProbe")
    }
    share = int(container["resources"]["requests"]["cpu"].removesuffix("m")) / 1000

    assert seconds["startupProbe"] >= 5 * 1 / share
    assert seconds["livenessProbe"] < seconds["startupProbe"]


def test_a_stop_ends_before_the_pod_is_killed() -> None:
    """With time for what follows the calls in flight: the last writes, the exit, the log."""
    grace = pod_spec(load("base"))["terminationGracePeriodSeconds"]
    assert GRACE_SECONDS < END_SECONDS < END_SECONDS + EXIT_SECONDS < grace


def test_two_instances_fit_on_one_node() -> None:
    """An update starts the new pod first: no port is shared, sockets are each pod's own."""
    objects = load("base")
    update = objects["DaemonSet", NAME]["spec"]["updateStrategy"]
    spec = pod_spec(objects)
    (container,) = spec["containers"]
    variables = {each["name"]: each.get("valueFrom") for each in container["env"]}

    assert update["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert not spec["hostNetwork"]
    assert variables[environment_variable("pod_uid")] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert not any("hostPort" in port for port in container["ports"])
    assert "readinessProbe" in container


def test_flags_name_mounted_folders() -> None:
    """Every folder that a flag or a variable names exists in the container."""
    (container,) = pod_spec(load("base"))["containers"]
    mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]

    values = [argument.partition("=")[2] for argument in container["args"]]
    values += [each.get("value", "") for each in container["env"]]
    folders = [Path(value) for value in values if value.startswith("/")]
    assert Path("/host/sys") in folders
    for folder in folders:
        assert any(folder.is_relative_to(mount) for mount in mounts), folder


def test_example_tolerates_our_taints_of_faults() -> None:
    """It names the key and each effect, because the eviction compares effects."""
    claim = load("examples")["ResourceClaim", "tolerates-fault"]
    (request,) = claim["spec"]["devices"]["requests"]
    tolerated = {
        (one["key"], one["operator"], one["effect"]) for one in request["exactly"]["tolerations"]
    }
    fault = Fault(code=1, level=FaultLevel.SEPARATE_NPU, rule="fault table", since=0.0)
    (taint,) = TaintPolicy(domain=DRIVER).taints(ChipHealth(faults=(fault,)))

    effects = set(TaintEffect) - {TaintEffect.NONE}
    assert tolerated == {(taint.key, "Exists", effect) for effect in effects}


def test_example_of_a_monitor_tolerates_all_taints() -> None:
    template = load("examples")["ResourceClaimTemplate", "every-npu"]
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["tolerations"] == [
        {"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")
    ]
