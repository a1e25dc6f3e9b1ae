"""Which cluster a command for people asks, by its flags and the environment, and as whom."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from trio_npu_dra.kit.api.credentials import Credentials, load_credentials, own_namespace
from trio_npu_dra.kit.api.kubeconfig import read_context
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.tools.login.login import files_of_person, log_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kubeconfig, and one of its contexts."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="default: the files of $KUBECONFIG, then ~/.kube/config, then the pod's account",
    )
    parser.add_argument(
        "--context", default="", help="of the kubeconfig (default: its current context)"
    )


async def credentials(asked: argparse.Namespace) -> tuple[Credentials, str]:
    """How to log in, and the namespace that is meant without `--namespace`.

    Raises:
        ConfigError: There is neither a kubeconfig nor a pod's service account, or the user of the
            context cannot log in.
    """
    files = (asked.kubeconfig,) if asked.kubeconfig else files_of_person(os.environ)
    if files:
        chosen = read_context(files, asked.context)
        return await log_in(chosen), chosen.namespace
    if asked.context:
        raise ConfigError(
            f"there is no kubeconfig that could have the context {asked.context}: give --kubeconfig"
        )
    if "KUBERNETES_SERVICE_HOST" not in os.environ:  # this is no pod
        raise ConfigError(
            "there is no kubeconfig: $KUBECONFIG is not set, and there is no ~/.kube/config; "
            "give --kubeconfig FILE"
        )
    return load_credentials(None), own_namespace() or "default"
