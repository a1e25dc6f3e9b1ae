"""What is deployed: names that people rely on, rights that the driver needs, flags that exist."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from trio_npu_dra.settings import add_flags

K8S = Path(__file__).parent.parent / "k8s"
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


def pod_spec(objects: dict[tuple[str, str], Any]) -> Any:
    """The pod spec of the DaemonSet."""
    return objects["DaemonSet", NAME]["spec"]["template"]["spec"]


def test_objects_have_the_guides_names() -> None:
    """Who follows the guide finds the same objects."""
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


def test_every_file_is_listed() -> None:
    """`kubectl apply -k` applies every manifest of the base."""
    kustomization = yaml.safe_load((K8S / "base/kustomization.yaml").read_text(encoding="utf-8"))

    files = {file.name for file in (K8S / "base").glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization["resources"])


def test_rights_are_the_least() -> None:
    """The node agent may do what it does, and nothing else."""
    rules = load("base")["ClusterRole", NAME]["rules"]
    rights = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    slices = {"get", "list", "watch", "create", "update", "delete"}
    expected = {("nodes", "get"), ("resourceclaims", "get")}
    assert rights == expected | {("resourceslices", verb) for verb in slices}


def test_the_admission_policy_is_about_our_account() -> None:
    """The policy matches the service account that the DaemonSet runs under."""
    objects = load("base")
    policy = objects["ValidatingAdmissionPolicy", "ascend-npu-dra-own-node-only"]
    account = objects["ServiceAccount", pod_spec(objects)["serviceAccountName"]]["metadata"]

    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert user in policy["spec"]["matchConditions"][0]["expression"]


def test_the_daemonsets_flags_exist() -> None:
    """The image's entrypoint understands every argument of the DaemonSet."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    add_flags(parser)
    (container,) = pod_spec(load("base"))["containers"]

    flags = parser.parse_args(container["args"])

    assert flags.node_name == "$(NODE_NAME)"
    assert flags.driver_name == DRIVER
    assert int(flags.healthcheck_port) == container["livenessProbe"]["grpc"]["port"]


def test_flags_name_mounted_folders() -> None:
    """Every folder that a flag names is there in the container."""
    (container,) = pod_spec(load("base"))["containers"]
    mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]

    values = [Path(argument.partition("=")[2]) for argument in container["args"]]
    for folder in (value for value in values if value.is_absolute()):
        assert any(folder.is_relative_to(mount) for mount in mounts), folder


def test_claims_ask_for_the_device_class() -> None:
    """The examples' requests have the form of resource.k8s.io/v1 and name our class."""
    objects = load("base", "examples")
    specs = [
        document["spec"]["spec"] if kind == "ResourceClaimTemplate" else document["spec"]
        for (kind, _), document in objects.items()
        if kind.startswith("ResourceClaim")
    ]

    assert specs
    for spec in specs:
        for request in spec["devices"]["requests"]:
            assert ("DeviceClass", request["exactly"]["deviceClassName"]) in objects
