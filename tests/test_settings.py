"""Flags, environment and defaults become one checked Settings."""

import argparse
from pathlib import Path

import pytest

from trio_npu_dra.agent.flags import add_flags, flag_of, flags
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.kit.base.errors import ConfigError

OF_A_NAME = "of a-z, 0-9, - and ., with a letter or digit at both ends"


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
        ({"node_name": "Node A"}, {}, f"--node-name=Node A: must be at most 253 {OF_A_NAME}"),
        ({"node_name": "n" * 254}, {}, f"nn: must be at most 253 {OF_A_NAME}"),
        (
            {"node_name": "n", "driver_name": "a_b"},
            {},
            f"--driver-name=a_b: must be at most 63 {OF_A_NAME}",
        ),
        (
            {"node_name": "n", "healthcheck_port": "abc"},
            {},
            "--healthcheck-port=abc: must be a whole number from -1 to 65535",
        ),
        (
            {"node_name": "n", "healthcheck_port": "65536"},
            {},
            "--healthcheck-port=65536: must be a whole number from -1 to 65535",
        ),
        (
            {"node_name": "n"},
            {"NPU_DRA_HEALTH_POLL_INTERVAL": "fast"},
            "NPU_DRA_HEALTH_POLL_INTERVAL=fast: must be a number from 0.1 to 3600 seconds",
        ),
        (
            {"node_name": "n", "evict_after": "nan"},
            {},
            "--evict-after=nan: must be a number from 0 to 3600 seconds",
        ),
        (
            {"node_name": "n", "npu_metrics": "maybe"},
            {},
            "--npu-metrics=maybe: must be true or false",
        ),
        (
            {"node_name": "n", "sharing": "share"},
            {},
            "--sharing=share: must be none or shares; did you mean shares?",
        ),
        ({"node_name": "n"}, {"NPU_DRA_CDI_ROOT": "etc"}, "NPU_DRA_CDI_ROOT=etc: must be an abs"),
        (
            {"node_name": "n"},
            {"NPU_DRA_POD_UID": "../a"},
            "NPU_DRA_POD_UID=../a: must be at most 63 letters, digits and -",
        ),
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
        ({"node_name": "n", "device_profile": "gpu"}, {}, "--device-profile=gpu: must be npu"),
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
            {"node_name": "n", "device_plugin_shares": "4"},
            {},
            "--device-plugin-shares=4: no NPU is in a resource whose devices could be shares: set",
        ),
        (
            {"node_name": "n", "device_plugin": "all", "device_plugin_shares": "101"},
            {},
            "--device-plugin-shares=101: must be a whole number from 1 to 100",
        ),
    ],
)
def test_a_wrong_value_names_its_origin(
    flags: dict[str, str | None], environment: dict[str, str], message: str
) -> None:
    """The error names flag or variable, the value, and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        Settings.load(flags, environment)

    assert message in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Each flag and variable in the line."""
    with pytest.raises(ConfigError) as caught:
        Settings.load({"sharing": "no"}, {"NPU_DRA_HTTP_PORT": "http"})

    assert str(caught.value) == (
        "--node-name is missing: set it or NPU_DRA_NODE_NAME; "
        "--sharing=no: must be none or shares; did you mean none?; "
        "NPU_DRA_HTTP_PORT=http: must be a whole number from -1 to 65535"
    )


@pytest.mark.parametrize(
    ("field", "metavar", "limits", "default"),
    [
        ("node_name", "NAME", "", None),
        ("pod_uid", "UID", "", ""),
        ("cdi_root", "PATH", "", "/etc/cdi"),
        ("kubeconfig", "PATH", "", ""),
        ("sharing", "{none,shares}", "", "none"),
        ("npu_metrics", "{true,false}", "", "true"),
        ("device_plugin_shares", "COUNT", "1 to 100", "1"),
        ("http_port", "PORT", "-1 to 65535", "-1"),
        ("evict_after", "SECONDS", "0 to 3600 seconds", "0"),
        ("health_poll_interval", "SECONDS", "0.1 to 3600 seconds", "5"),
        ("taint_effect", "LEVEL=EFFECT,...", "", ""),
    ],
)
def test_help_shows_what_a_field_takes(
    field: str, metavar: str, limits: str, default: str | None
) -> None:
    """By its type, not by its name."""
    found = flag_of(field, Settings.model_fields[field])

    assert (found.metavar, found.limits, found.default) == (metavar, limits, default)
    assert all(part in found.help for part in (limits, default or "", found.variable))


def test_every_setting_has_a_heading_and_a_form() -> None:
    """None is called after the last word of its name, nor `TEXT`."""
    for field, found in flags(Settings):
        assert found.group
        assert found.description
        assert found.metavar != "TEXT", field


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
