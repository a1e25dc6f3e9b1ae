"""Flags, environment and defaults become one checked Settings."""

import argparse
from pathlib import Path

import pytest

from trio_npu_dra.agent.settings import Settings, add_flags
from trio_npu_dra.kit.base.errors import ConfigError


def test_a_flag_wins_over_its_environment_twin() -> None:
    """The order is flag, then variable, then default."""
    settings = Settings.load(
        {"node_name": "from-flag", "cdi_root": None},
        {"NPU_DRA_NODE_NAME": "from-env", "NPU_DRA_CDI_ROOT": "/var/run/cdi", "PATH": "/bin"},
    )

    assert settings.node_name == "from-flag"
    assert settings.cdi_root == Path("/var/run/cdi")
    assert settings.driver_name == "npu.huawei.com"


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        ({}, {}, "--node-name is missing: set it or NPU_DRA_NODE_NAME"),
        ({"node_name": "Node A"}, {}, "--node-name=Node A: "),
        ({"node_name": "n", "healthcheck_port": "abc"}, {}, "--healthcheck-port=abc: "),
        ({"node_name": "n", "healthcheck_port": "65536"}, {}, "--healthcheck-port=65536: "),
        ({"node_name": "n"}, {"NPU_DRA_CDI_ROOT": "etc"}, "NPU_DRA_CDI_ROOT=etc: must be an abs"),
        ({"node_name": "n"}, {"NPU_DRA_POD_UID": "../a"}, "NPU_DRA_POD_UID=../a: "),
        (
            {"node_name": "n", "extra_mount": "data"},
            {},
            "--extra-mount=data: 'data' in 'data' must",
        ),
        ({"node_name": "n"}, {"NPU_DRA_EXTRA_MOUNT": "/a:/b/.."}, "'/b/..' in '/a:/b/..' must be"),
        ({"node_name": "n", "extra_mount": "/a,/"}, {}, "'/' in '/' must be an absolute path"),
        ({"node_name": "n", "extra_mount": "/a:/b:ro"}, {}, "'/b:ro' in '/a:/b:ro' must be an abs"),
        ({"node_name": "n", "extra_mount": "/a:/./b"}, {}, "'/./b' in '/a:/./b' must be an abs"),
        ({"node_name": "n", "extra_mount": "/a:"}, {}, "'' in '/a:' must be an absolute path"),
        (
            {"node_name": "n", "extra_mount": "/a,/b:/a"},
            {},
            "two mounts have the container path /a",
        ),
        ({"node_name": "n", "device_profile": "gpu"}, {}, "--device-profile=gpu: "),
        (
            {"node_name": "n", "partitioning": "dynamic"},
            {"NPU_DRA_SHARING": "shares"},
            "--partitioning=dynamic: NPUs cannot be cut and divided into shares at once: set one",
        ),
        (
            {"node_name": "n", "partitioning": "dynamic", "device_plugin": "all"},
            {"NPU_DRA_DEVICE_PLUGIN_SHARES": "4"},
            "set one of the two, this or --device-plugin-shares=4",
        ),
        (
            {
                "node_name": "n",
                "device_plugin": "all",
                "device_plugin_shares": "4",
                "mindcluster_compat": "true",
            },
            {},
            "--mindcluster-compat=true: Volcano knows and chooses whole NPUs only: leave",
        ),
        (
            {"node_name": "n", "device_plugin_shares": "4"},
            {},
            "--device-plugin-shares=4: no NPU is in a resource whose devices could be shares: set",
        ),
        (
            {"node_name": "n", "device_plugin": "all", "device_plugin_shares": "101"},
            {},
            "--device-plugin-shares=101: Input should be less than or equal to 100",
        ),
    ],
)
def test_a_wrong_value_names_its_origin(
    flags: dict[str, str | None], environment: dict[str, str], message: str
) -> None:
    """The error names flag or variable and the value."""
    with pytest.raises(ConfigError) as caught:
        Settings.load(flags, environment)

    assert message in str(caught.value)


def test_extra_mounts_are_pairs_of_paths() -> None:
    """Without a path in the container it is the host's."""
    settings = Settings.load({"node_name": "n", "extra_mount": "/opt/.x,/data/m:/models"}, {})
    assert settings.extra_mounts == (("/opt/.x", "/opt/.x"), ("/data/m", "/models"))
    assert Settings.load({"node_name": "n", "extra_mount": ""}, {}).extra_mounts == ()


def test_the_flags_of_the_published_guide_are_known() -> None:
    """The guide's DaemonSet passes exactly these."""
    parser = argparse.ArgumentParser()
    add_flags(parser, Settings)

    parsed = parser.parse_args(
        [
            "--node-name=master",
            "--device-profile=npu",
            "--driver-name=npu.huawei.com",
            "--kubelet-registrar-directory-path=/var/lib/kubelet/plugins_registry",
            "--kubelet-plugins-directory-path=/var/lib/kubelet/plugins",
            "--cdi-root=/etc/cdi",
            "--healthcheck-port=-1",
        ]
    )

    settings = Settings.load(vars(parsed), {})
    assert settings.healthcheck_port == -1
    assert settings.plugin_directory == Path("/var/lib/kubelet/plugins/npu.huawei.com")
