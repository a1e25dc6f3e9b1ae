"""What Helm makes of the chart: what kustomize makes of k8s/, and what values say besides."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.api import Object
from dev.cluster.binaries import helm
from dev.cluster.processes import ClusterError, run
from dev.site.chart_values import CHART, ROOT
from tests.helm.chart import (
    REPOSITORY,
    Objects,
    kustomized,
    objects,
    template,
    without_labels,
)
from tests.test_manifests import load
from trio_npu_dra import __version__
from trio_npu_dra.agent.flags import add_flags
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.ascend.model import ChipFamily

NAME = "ascend-npu-dra-kubeletplugin"
MONITORING = {"podMonitor": True, "rules": True, "dashboard": True}
SIMULATED = {"simulator": {"enabled": True}}
DIGEST = f"sha256:{'0' * 64}"


def rendered(values: Object | None = None) -> Objects:
    """The objects of the chart, without its own labels and without those of `helm test`."""
    return without_labels(objects(template(values, "--no-hooks")))


def pod_spec(values: Object) -> Any:
    """The spec of the driver's pods."""
    return rendered(values)["DaemonSet", NAME]["spec"]["template"]["spec"]


def settings_of(flags: Object) -> Settings:
    """The driver's settings, as it reads them from the arguments of its container."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    add_flags(parser, Settings)
    (container,) = pod_spec({"flags": flags})["containers"]
    given = vars(parser.parse_args(container["args"]))
    return Settings.load(given, {"NPU_DRA_NODE_NAME": "node"})


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        ("base", {}),
        ("overlays/open-metrics", {"networkPolicy": {"namespaces": []}}),
        ("overlays/simulator", SIMULATED),
        ("overlays/label-node", {"flags": {"label-node": True}}),
    ],
)
def test_chart_installs_what_kustomize_does(folder: str, values: Object) -> None:
    """But for the Namespace, which Helm has from its command line, and the labels of a chart."""
    wanted = objects(kustomized(folder))
    del wanted["Namespace", "ascend-dra"]
    assert rendered(values) == wanted


def test_monitoring_is_that_of_kustomize() -> None:
    """Beside the driver, which kustomize applies apart; with labels that Prometheus may want."""
    found = rendered({"monitoring": MONITORING})
    assert found == rendered() | objects(kustomized("monitoring"))
    labels = {"release": "prometheus"}
    found = objects(template({"monitoring": MONITORING | {"labels": labels}}))
    for kind, name in (("PodMonitor", NAME), ("PrometheusRule", "ascend-npu-dra")):
        assert found[kind, name]["metadata"]["labels"]["release"] == "prometheus"


def test_families_have_the_classes_of_the_example() -> None:
    """One for each family."""
    text = (ROOT / "k8s/examples/device-classes.yaml").read_text(encoding="utf-8")
    shown = {key: about for key, about in objects(text).items() if key[0] == "DeviceClass"}
    found = rendered({"deviceClasses": {"families": {family: {} for family in ChipFamily}}})
    assert found == rendered() | shown


def test_classes_have_extended_resources() -> None:
    """Each its own."""
    families = {"Ascend910B": {"extendedResourceName": "huawei.com/npu-910b"}}
    classes = {"extendedResourceName": "huawei.com/npu", "families": families}
    found = rendered({"deviceClasses": classes})
    resources = {
        name: about["spec"].get("extendedResourceName")
        for (kind, name), about in found.items()
        if kind == "DeviceClass"
    }
    assert resources == {
        "npu.huawei.com": "huawei.com/npu",
        "ascend910b.npu.huawei.com": "huawei.com/npu-910b",
    }


def test_other_namespace_and_folders_are_everywhere() -> None:
    """In mounts, flags, subjects, policies and what alerts say.

    The kubelet's folder for device plugins is the same whatever its `--root-dir`.
    """
    values: Object = {
        "kubelet": {"directory": "/var/lib/k0s/kubelet"},
        "cdi": {"directory": "/var/run/cdi"},
        "monitoring": MONITORING,
    }
    text = template(values, namespace="npus-of-mine")
    fixed = "/var/lib/kubelet/device-plugins"
    assert text.count(fixed) == 3, "in a flag, a mount and a volume"
    text = text.replace(fixed, "")
    for word in ("ascend-dra", "/var/lib/kubelet", "/etc/cdi"):
        assert word not in text
    agent = f"system:serviceaccount:npus-of-mine:{NAME}"
    assert text.count(agent) == 3, "one in each policy about the node agent"


def test_driver_understands_its_flags() -> None:
    """Also those whose text has parts."""
    settings = settings_of(
        {
            "partitioning": "dynamic",
            "shares-per-npu": 4,
            "npu-metrics": False,
            "log-level": "debug",
            "device-plugin": ["0-3", "Ascend310P=huawei.com/x"],
            "extra-mount": ["/opt/tools:/tools"],
            "taint-effect": {"SeparateNPU": "NoSchedule", "Network": "None"},
        }
    )
    assert settings.partitioning == "dynamic"
    assert settings.shares_per_npu == 4
    assert not settings.npu_metrics
    assert settings.log_level == "debug"
    assert settings.device_plugin == "0-3,Ascend310P=huawei.com/x"
    assert settings.extra_mounts == (("/opt/tools", "/tools"),)
    assert settings.taint_effect == "Network=None,SeparateNPU=NoSchedule"


@pytest.mark.parametrize(
    ("named", "image"),
    [
        ({}, f"{REPOSITORY}:{__version__}"),
        ({"repository": "example.com/npu", "tag": "v2"}, "example.com/npu:v2"),
        ({"tag": "v2", "digest": DIGEST}, f"{REPOSITORY}@{DIGEST}"),
    ],
)
def test_image_is_the_one_that_is_named(named: Object, image: str) -> None:
    """The board, of the profile that is named, is laid out from the same image."""
    board = {"simulator": {"enabled": True, "profile": "a3-16"}}
    spec = pod_spec({"image": named | {"pullPolicy": "Always"}} | board)
    assert spec["initContainers"][0]["env"] == [{"name": "PROFILE", "value": "a3-16"}]
    containers = [*spec["initContainers"], *spec["containers"]]
    assert {(each["image"], each["imagePullPolicy"]) for each in containers} == {(image, "Always")}


def test_pods_are_where_and_as_values_say() -> None:
    """Lists replace the default, maps are merged with it, as everywhere in Helm."""
    replaced = {
        "tolerations": [{"key": "example.com/npu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "mine",
        "imagePullSecrets": [{"name": "registry"}],
    }
    merged = {
        "nodeSelector": {"example.com/npu": "yes"},
        "resources": {"limits": {"memory": "512Mi"}},
    }
    spec = pod_spec(replaced | merged)
    assert {name: spec[name] for name in replaced} == replaced
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "example.com/npu": "yes"}
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    assert container["resources"]["requests"] == {"cpu": "50m", "memory": "96Mi"}


def test_pods_and_account_have_what_values_add() -> None:
    """Labels and variables besides those of the base, and a strategy in place of it."""
    values: Object = {
        "podAnnotations": {"example.com/a": "b"},
        "podLabels": {"team": "ml"},
        "serviceAccount": {"annotations": {"example.com/role": "r"}},
        "updateStrategy": {"type": "OnDelete"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    }
    found, base = rendered(values), rendered()
    (daemonset, was) = (each["DaemonSet", NAME]["spec"] for each in (found, base))
    template = daemonset["template"]
    assert template["metadata"] == {
        "annotations": {"example.com/a": "b"},
        "labels": {"app": NAME, "team": "ml"},
    }
    assert daemonset["updateStrategy"] == {"type": "OnDelete"}
    assert found["ServiceAccount", NAME]["metadata"]["annotations"] == {"example.com/role": "r"}
    (container,), (before,) = (each["template"]["spec"]["containers"] for each in (daemonset, was))
    assert container["env"] == [*before["env"], *values["extraEnv"]]


def test_other_name_is_everywhere() -> None:
    """In selectors, subjects, policies, alerts and the dashboard: no other word differs."""
    values: Object = {"monitoring": MONITORING, "openshift": {"scc": True}}
    text = template({**values, "nameOverride": "npu-agent"})
    assert NAME not in text
    assert text.replace("npu-agent", NAME) == template(values)


def test_the_pod_of_helm_test_comes_to_nodes_that_are_kept_for_npus() -> None:
    """Whatever taint keeps others away, but to none that evicts, as one that is not ready."""
    pod = objects(template())["Pod", "npus-test"]
    assert pod["spec"]["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}]


def test_openshift_lets_the_account_be_privileged() -> None:
    """By the role that OpenShift has for that, in the release's namespace."""
    found = rendered({"openshift": {"scc": True}})
    binding = found.pop(("RoleBinding", f"{NAME}-scc"))
    assert found == rendered()
    assert binding["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": NAME, "namespace": "ascend-dra"}
    ]


@pytest.mark.parametrize(
    ("part", "name", "gone"),
    [
        ("networkPolicy", "enabled", {NAME}),
        ("admissionPolicies", "configs", {"ascend-npu-dra-config"}),
        (
            "admissionPolicies",
            "ownNode",
            {"ascend-npu-dra-own-node-only", "ascend-npu-dra-own-events"},
        ),
    ],
)
def test_parts_can_be_left_out(part: str, name: str, gone: set[str]) -> None:
    """A policy and its binding together; all else stays."""
    everything, found = rendered(), rendered({part: {name: False}})
    assert {name for _, name in everything.keys() - found.keys()} == gone
    assert found == {key: everything[key] for key in found}


def test_rights_over_other_nodes_never_come_without_their_policy() -> None:
    """Also where the base's are left out: it would be a right over every node."""
    open_base: Object = {"admissionPolicies": {"ownNode": False}}
    base, found = rendered(open_base), rendered(open_base | {"flags": {"label-node": True}})
    assert {key: found[key] for key in found.keys() - base.keys()} == load("node-labels")


def test_right_to_the_status_of_claims_comes_and_goes_with_its_policy() -> None:
    """By the flag alone: the right is for all claims, and before Kubernetes 1.36 for all of it."""
    open_base: Object = {"admissionPolicies": {"ownNode": False}}
    found, without = rendered(open_base), rendered(open_base | {"flags": {"claim-status": False}})
    policy = "ValidatingAdmissionPolicy"
    gone = {"ClusterRole", "ClusterRoleBinding", policy, f"{policy}Binding"}
    assert {kind for kind, _ in found.keys() - without.keys()} == gone


def test_network_policy_names_each_namespace() -> None:
    """Pods of each may scrape."""
    policy = rendered({"networkPolicy": {"namespaces": ["a", "b"]}})["NetworkPolicy", NAME]
    (rule,) = policy["spec"]["ingress"]
    labels = [each["namespaceSelector"]["matchLabels"] for each in rule["from"]]
    assert labels == [{"kubernetes.io/metadata.name": each} for each in "ab"]


def test_network_policy_can_name_the_ports_of_the_api_server() -> None:
    """By default it names none, because each cluster has its own."""
    policy = rendered({"networkPolicy": {"apiServerPorts": [443, 5443]}})["NetworkPolicy", NAME]
    ports = [{"protocol": "TCP", "port": port} for port in (443, 5443)]
    assert policy["spec"]["egress"] == [{"ports": ports}]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("partitioning=dynamic", "'partitioning' not allowed"),
        ("flags.log-levl=debug", "at '/flags': additional properties 'log-levl'"),
        ("flags.partitioning=cut", "at '/flags/partitioning': value must be one of 'none', "),
        ("flags.taint-effect.SeparateNPU=Evict", "at '/flags/taint-effect/SeparateNPU': "),
        ("flags.shares-per-npu=1", "at '/flags/shares-per-npu': minimum: got 1, want 2"),
        ("flags.device-plugin=all", "at '/flags/device-plugin': got string, want array"),
        ("image.digest=latest", "at '/image/digest': 'latest'"),
        ("kubelet.directory=var/lib", "at '/kubelet/directory': 'var/lib'"),
        ("deviceClasses.families.Ascend911.x=1", "at '/deviceClasses/families': "),
        ("simulator.profile=910b9", "at '/simulator/profile': value must be one of "),
    ],
)
def test_wrong_value_is_refused_by_name(setting: str, words: str) -> None:
    """As people set it; with what would be right."""
    with pytest.raises(ClusterError) as refused:
        run(helm(), "template", CHART, "--set", setting)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"image": {"repository": ""}}, "image.repository is not set: name the repository"),
        ({"extraEnv": [{"name": "NPU_DRA_SHARING"}]}, "extraEnv has NPU_DRA_SHARING"),
        ({"podLabels": {"app": "mine"}}, "podLabels has app"),
    ],
)
def test_values_that_would_break_the_pods_are_refused(values: Object, words: str) -> None:
    """They have the right form; the error says what to do."""
    with pytest.raises(ClusterError, match=words):
        template(values)


def test_npus_are_not_both_cut_and_shared() -> None:
    """The driver would refuse both at once, but only when it starts."""
    with pytest.raises(ClusterError, match="exclude each other: set one of the two"):
        template({"flags": {"partitioning": "dynamic", "sharing": "shares"}})


def test_package_needs_no_checkout(tmp_path: Path) -> None:
    """It has the files that the link leads to, and none that no template reads."""
    run(helm(), "package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.iterdir()
    assert package.name == f"trio-npu-dra-{__version__.replace('.dev', '-dev')}.tgz"
    values = SIMULATED | {"monitoring": MONITORING}
    assert template(values, chart=package) == template(values)
    files = run("tar", "--list", "--file", package).splitlines()
    assert not [name for name in files if "examples" in name or "kustomization" in name]


def test_helm_finds_no_fault() -> None:
    """Its linter, which takes warnings for errors here."""
    run(helm(), "lint", "--strict", CHART, "--set", f"image.repository={REPOSITORY}")
