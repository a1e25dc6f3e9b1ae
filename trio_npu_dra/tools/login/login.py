"""How a person gets in: as the kubeconfig says, by a credential plugin where it names one."""

from __future__ import annotations

import base64
from typing import Any

import anyio

from trio_npu_dra.kit.api.credentials import (
    BearerToken,
    Credentials,
    authority_of,
    client_certificate_of,
    credentials_of,
    token_of,
    unix_socket_of,
)
from trio_npu_dra.kit.api.kubeconfig import KubeContext
from trio_npu_dra.kit.api.material import Material
from trio_npu_dra.kit.api.tls import ClientCertificate, Trust
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.tools.login.credential_plugin import EXTENSION, Credential, CredentialPlugin


async def log_in(chosen: KubeContext) -> Credentials:
    """Credentials for a context; with a token in the kubeconfig no plugin runs, as in kubectl.

    Raises:
        ConfigError: Something is missing or not supported, or the plugin gives no credentials.
    """
    token = token_of(chosen)
    if not chosen.user.exec or token is not None or unix_socket_of(chosen) is not None:
        return credentials_of(chosen, _trust(chosen), token, client_certificate_of(chosen))
    return await PluginLogin(chosen, chosen.user.exec).current()


class PluginLogin:
    """Credentials by a credential plugin, kept until they expire or are refused.

    Args:
        chosen: Cluster and user.
        given: What the kubeconfig says about the plugin.

    Raises:
        ConfigError: That is not understood, or whom to trust.
    """

    def __init__(self, chosen: KubeContext, given: dict[str, Any]) -> None:
        self._chosen = chosen
        self._trust = _trust(chosen)
        self._plugin = CredentialPlugin(
            f"{chosen.user_file}: user.exec",
            given,
            chosen.user_file.parent,
            _cluster_info(chosen),
        )
        self._lock = anyio.Lock()
        self._held: tuple[Credential, Credentials] | None = None

    async def current(self, refused: Credentials | None = None) -> Credentials:
        """Credentials that have not ended; the plugin runs if it has to.

        Args:
            refused: Credentials that the API server does not take (any more).

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
        token, certificate = None, client_certificate_of(self._chosen)
        if given.token:
            token = BearerToken(Material(field=f"{field}: token", data=given.token.encode()))
        if given.certificate:
            certificate = ClientCertificate(
                certificate=Material(
                    field=f"{field}: clientCertificateData", data=given.certificate
                ),
                key=Material(field=f"{field}: clientKeyData", data=given.key),
            )
        return credentials_of(self._chosen, self._trust, token, certificate, self)


def _trust(chosen: KubeContext) -> Material | Trust:
    """Whom to trust; of a cluster without a CA of its own the system's, as in kubectl.

    Raises:
        ConfigError: The cluster has a CA, and is not to be verified.
    """
    authority = authority_of(chosen)
    if not chosen.cluster.insecure_skip_tls_verify:
        return authority or Trust.SYSTEM
    if authority is not None:
        raise ConfigError(
            f"{chosen.cluster_file}: cluster.insecure-skip-tls-verify is true: "
            "then there must be no certificate-authority(-data)"
        )
    return Trust.ANYONE


def _cluster_info(chosen: KubeContext) -> dict[str, Any]:
    """What a credential plugin may be told of the cluster."""
    cluster = chosen.cluster
    info: dict[str, Any] = {"server": cluster.server}
    if cluster.tls_server_name:
        info["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    if authority := authority_of(chosen):
        info["certificate-authority-data"] = base64.b64encode(authority.read()).decode()
    for one in cluster.extensions:
        if one.name == EXTENSION:
            info["config"] = one.extension
    return info
