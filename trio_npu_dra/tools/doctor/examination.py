"""All checks of a node, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trio_npu_dra.tools.doctor import (
    addresses,
    api_server,
    chips,
    device_plugins,
    dra_drivers,
    kubelet,
    own_state,
    runtimes,
)
from trio_npu_dra.tools.doctor.finding import Check, Finding
from trio_npu_dra.tools.doctor.places import Places


async def examine(
    places: Places, *, node_name: str | None, kubeconfig: Path | None, claim_status: bool
) -> tuple[Check, ...]:
    """Check a node; without a name of its Node the API server is not asked.

    *claim_status* is whether its driver should write the status of claims.
    """
    own = own_state.look(places)
    asked = await api_server.look(
        node_name,
        kubeconfig,
        entries=own.records.entries.values(),
        driver_name=places.driver_name,
    )
    npus = await chips.look(places)
    checks = (
        _check("Ascend driver", chips.judge_driver(npus)),
        _check("NPUs in use", chips.judge_use(npus, own.ours)),
        _check("NPUs divided", chips.judge_division(npus, own.ours)),
        _check("NPU addresses", addresses.judge(npus.board, npus.addresses)),
        _check("HCCL root info", chips.judge_root_info(npus)),
        _check("device plugins", device_plugins.check(places)),
        _check("DRA drivers", dra_drivers.check(places, own.instances, asked.slices or ())),
        _check("container runtime", runtimes.check(places, asked.runtime)),
        _check("kubelet", kubelet.check(places, asked.kubelet)),
        _check("API server", api_server.judge(asked, claim_status=claim_status)),
        _check("this driver", own.findings),
    )
    return tuple(check for check in checks if check.findings)


def _check(name: str, findings: Iterable[Finding]) -> Check:
    return Check(name=name, findings=tuple(findings))
