"""Credential plugins: programs, named by a kubeconfig, that print a token or a client certificate.

The rules are those of Kubernetes' "client-go credential plugins"; `kubectl npu` alone runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from pydantic import AwareDatetime, Field, ValidationError, model_validator

from trio_npu_dra.kit.api.objects import ApiModel, Items
from trio_npu_dra.kit.base.errors import ConfigError

_V1: Final = "client.authentication.k8s.io/v1"
EXTENSION: Final = "client.authentication.k8s.io/exec"
"""Name of the extension of a cluster that is for plugins."""
_KIND: Final = "ExecCredential"


class PluginVariable(ApiModel):
    """env[]."""

    name: str = Field(min_length=1)
    value: str = ""


class PluginConfig(ApiModel):
    """users[].user.exec.

    Attributes:
        command: A program in `PATH`, or a path, relative to the folder of the kubeconfig.
        env: Variables besides those of our environment.
        install_hint: What to do if the program is missing.
        provide_cluster_info: Whether the program gets the facts of the cluster.
        interactive_mode: Whether the program may use the terminal; v1 wants it to be said.
    """

    api_version: Literal["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"]
    command: str = Field(min_length=1)
    args: Items[str] | None = None
    env: Items[PluginVariable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always"] | None = None

    @model_validator(mode="after")
    def _says_what_the_terminal_is_for(self) -> PluginConfig:
        if self.api_version == _V1 and not self.interactive_mode:
            raise ValueError("interactiveMode is missing: give Never, IfAvailable or Always")
        return self


class Credential(ApiModel):
    """status of an ExecCredential: a token, a client certificate with its key, or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: AwareDatetime | None = None

    @model_validator(mode="after")
    def _has_an_identity(self) -> Credential:
        if bool(self.client_certificate_data) != bool(self.client_key_data):
            raise ValueError("clientCertificateData and clientKeyData go together")
        if not self.token and not self.client_key_data:
            raise ValueError("has neither token nor clientCertificateData")
        return self

    @property
    def is_expired(self) -> bool:
        """Whether it has ended by the clock of this machine, as kubectl judges it."""
        end = self.expiration_timestamp
        return end is not None and end <= datetime.now(UTC)


class _Answer(ApiModel):
    api_version: str
    kind: Literal["ExecCredential"]
    status: Credential


class CredentialPlugin:
    """A program that gives credentials.

    Args:
        field: `FILE: user.exec`, for messages.
        given: The plugin's part of the kubeconfig.
        folder: The folder of the kubeconfig.
        cluster: Facts of the cluster, for a program that wants them.

    Raises:
        ConfigError: What the kubeconfig says is not understood.
    """

    def __init__(
        self, field: str, given: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]
    ) -> None:
        try:
            self._config = PluginConfig.model_validate(given)
        except ValidationError as error:
            raise ConfigError(f"{field}{_first(error)}") from error
        self.field = field
        self._cluster = cluster
        command = self._config.command
        self._command = str(folder / command) if os.sep in command else command

    async def run(self) -> Credential:
        """Run the program; what it writes to stderr is shown, and it may ask on a terminal.

        Raises:
            ConfigError: It cannot be run, failed, or its answer is not understood.
        """
        mode = self._config.interactive_mode
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not has_terminal:
            raise ConfigError(
                f"{self.field}: {self._command} asks people, and stdin is no terminal"
            )
        is_interactive = has_terminal and mode != "Never"
        try:
            done = await anyio.run_process(
                [self._command, *(self._config.args or ())],
                stdin=sys.stdin if is_interactive else subprocess.DEVNULL,
                stderr=None,
                check=False,
                env=self._environment(is_interactive=is_interactive),
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            hint = " ".join((self._config.install_hint or "").split())
            raise ConfigError(
                f"{self.field}: cannot run {self._command}: "
                f"{getattr(error, 'strerror', None) or error}{hint and f': {hint}'}"
            ) from error
        if done.returncode:
            raise ConfigError(
                f"{self.field}: {self._command} failed with exit status {done.returncode}"
            )
        return self._understood(done.stdout)

    def _environment(self, *, is_interactive: bool) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": is_interactive}
        if self._config.provide_cluster_info:
            spec["cluster"] = dict(self._cluster)
        info = {"apiVersion": self._config.api_version, "kind": _KIND, "spec": spec}
        given = {one.name: one.value for one in self._config.env or ()}
        wire = json.dumps(info, default=str)  # YAML has dates, which JSON has as texts
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": wire}

    def _understood(self, output: bytes) -> Credential:
        try:
            answer = _Answer.model_validate_json(output)
        except ValidationError as error:  # its inputs may be secrets, and are not shown
            raise ConfigError(
                f"{self.field}: what {self._command} printed is not understood{_first(error)}"
            ) from error
        if answer.api_version != self._config.api_version:
            raise ConfigError(
                f"{self.field}: {self._command} answered in {answer.api_version}, not in "
                f"{self._config.api_version}"
            )
        return answer.status


def _first(error: ValidationError) -> str:
    """The first flaw, as `.field: what is wrong`."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = "".join(f".{step}" for step in first["loc"])
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"
