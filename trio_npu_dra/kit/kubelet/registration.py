"""The registration service: it names the driver, and hears whether the kubelet accepted it."""

import logging
from dataclasses import dataclass
from pathlib import Path

import trio

from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Route, methods
from trio_npu_dra.kit.grpc._generated import pluginregistration

log = logging.getLogger(__name__)

SUPPORTED_VERSIONS = (
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
)
"""Our services, best first: a kubelet takes the first of a kind that it knows, and skips the rest.

The API server must be of 1.34 or newer, but a node may be older than it: a kubelet of 1.32 or 1.33
knows only `v1beta1.DRAPlugin`. Health is read as v1alpha1 from 1.34 to 1.36 and as v1 from 1.37 on.
"""

_REASON_LIMIT = 1024
"""Characters of the kubelet's reason that are kept, shown and logged."""


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """The kubelet's last decision about our registration.

    Attributes:
        registered: Whether it calls us.
        error: Why it refused; empty if it did not refuse, or has not decided yet.
    """

    registered: bool
    error: str = ""


NOT_REGISTERED = RegistrationStatus(registered=False)

PATIENCE_SECONDS = 2.0
"""How long publishing waits for the kubelet, which retries a pod that came too early in minutes."""


async def wait_registered(status: Observable[RegistrationStatus]) -> None:
    """Wait until the kubelet has registered the driver, or for `PATIENCE_SECONDS`.

    Publish after it: an earlier slice would let a waiting pod be scheduled before the kubelet knows
    the driver, and its prepare would fail.
    """
    with trio.move_on_after(PATIENCE_SECONDS):
        await status.wait_until(lambda now: now.registered)


def routes(
    driver_name: str, endpoint: Path, status: Observable[RegistrationStatus]
) -> tuple[Route, ...]:
    """The methods of the registration service.

    Args:
        driver_name: As in DeviceClasses and ResourceSlices.
        endpoint: The service socket, absolute, as the kubelet sees it.
        status: Set to each decision of the kubelet.
    """
    info = pluginregistration.PluginInfo(
        type="DRAPlugin",
        name=driver_name,
        endpoint=str(endpoint),
        supported_versions=list(SUPPORTED_VERSIONS),
    )

    async def get_info(_: pluginregistration.InfoRequest) -> pluginregistration.PluginInfo:
        return info

    async def notify(
        request: pluginregistration.RegistrationStatus,
    ) -> pluginregistration.RegistrationStatusResponse:
        if request.plugin_registered:
            log.info("registered with the kubelet", extra={"driver": driver_name})
            status.set(RegistrationStatus(registered=True))
        else:
            reason = request.error[:_REASON_LIMIT] or "no reason given"
            log.error(
                "the kubelet refused to register the driver",
                extra={"driver": driver_name, "reason": reason},
            )
            status.set(RegistrationStatus(registered=False, error=reason))
        return pluginregistration.RegistrationStatusResponse()

    return (
        methods.GET_INFO.handled_by(get_info),
        methods.NOTIFY_REGISTRATION_STATUS.handled_by(notify),
    )
