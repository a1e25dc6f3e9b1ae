"""How a person gets in: as the kubeconfig says, by a credential plugin where it names one."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from trio_npu_dra.kit.api.credentials import BearerToken, Credentials
from trio_npu_dra.kit.api.kubeconfig import KubeContext
from trio_npu_dra.kit.api.material import Material
from trio_npu_dra.kit.api.tls import ClientCertificate, Trust
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.tools.login.credential_plugin import EXTENSION, Credential, CredentialPlugin


def files_of_person(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that kubectl reads by default: those in `KUBECONFIG`, or `~/.kube/config`.

    Some files in `KUBECONFIG` may be missing. Without `KUBECONFIG` there may be no file at all.

    Raises:
        ConfigError: `KUBECONFIG` names no file that exists.
        StorageError: We may not look there.
    """
    named = environment.get("KUBECONFIG", "")
    if not named:
        usual = Path("~/.kube/config").expanduser()
        return (usual,) if storage.is_there(usual) else ()
    found = tuple(filter(storage.is_there, map(Path, filter(None, named.split(os.pathsep)))))
    if not found:
        raise ConfigError(f"KUBECONFIG={named} names no file that exists")
    return found


async def log_in(context: KubeContext) -> Credentials:
    """Credentials for a context; with a token in the kubeconfig no plugin runs, as in kubectl.

    Raises:
        ConfigError: Something is missing or not supported, or the plugin gives no credentials.
    """
    token = context.token()
    if not context.user.exec or token is not None or context.unix_socket is not None:
        return context.credentials(_trust(context), token, context.client_certificate())
    return await PluginLogin(context, context.user.exec).current()


class PluginLogin:
    """Credentials by a credential plugin, kept until they expire or are refused.

    Raises:
        ConfigError: That is not understood, or whom to trust.
    """

    def __init__(self, context: KubeContext, given: dict[str, Any]) -> None:
        self._context = context
        self._trust = _trust(context)
        self._plugin = CredentialPlugin(
            f"{context.user_file}: user.exec",
            given,
            context.user_file.parent,
            _cluster_info(context),
        )
        self._lock = anyio.Lock()
        self._held: tuple[Credential, Credentials] | None = None

    async def current(self, refused: Credentials | None = None) -> Credentials:
        """Credentials that have not ended and are not the *refused* ones; may run the plugin.

        Raises:
            ConfigError: The plugin gives none.
        """
        async with self._lock:
            if self._held is None or self._held[0].is_expired or self._held[1] is refused:
                credential = await self._plugin.run()
                self._held = (credential, self._credentials(credential))
            return self._held[1]

    def _credentials(self, given: Credential) -> Credentials:
        field = self._plugin.field
        token, certificate = None, self._context.client_certificate()
        if given.token:
            token = BearerToken(Material(field=f"{field}: token", data=given.token.encode()))
        if given.client_certificate_data and given.client_key_data:
            certificate = ClientCertificate(
                certificate=Material(
                    field=f"{field}: clientCertificateData",
                    data=given.client_certificate_data.encode(),
                ),
                key=Material(field=f"{field}: clientKeyData", data=given.client_key_data.encode()),
            )
        return self._context.credentials(self._trust, token, certificate, self)


def _trust(context: KubeContext) -> Material | Trust:
    """Whom to trust; of a cluster without a CA of its own the system's, as in kubectl.

    Raises:
        ConfigError: The cluster has a CA, and is not to be verified.
    """
    authority = context.authority
    if not context.cluster.insecure_skip_tls_verify:
        return authority or Trust.SYSTEM
    if authority is not None:
        raise ConfigError(
            f"{context.cluster_file}: cluster.insecure-skip-tls-verify is true: "
            "then there must be no certificate-authority(-data)"
        )
    return Trust.ANYONE


def _cluster_info(context: KubeContext) -> dict[str, Any]:
    """The facts of the cluster for a credential plugin."""
    cluster = context.cluster
    info: dict[str, Any] = {"server": cluster.server}
    if cluster.tls_server_name:
        info["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    if authority := context.authority:
        info["certificate-authority-data"] = base64.b64encode(authority.read()).decode()
    for one in cluster.extensions:
        if one.name == EXTENSION:
            info["config"] = one.extension
    return info
