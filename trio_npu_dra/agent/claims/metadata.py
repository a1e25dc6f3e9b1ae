"""What containers can read of a claim's devices (`kit.base.device_metadata` has the form)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trio_npu_dra.agent.holds.entry import Allocated, Entry
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.api.claims import base_request
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.device_metadata import Documents, renewed

_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetadata:
    """Writes metadata.

    Attributes:
        driver_name: The driver of our results in an allocation.
        attributes: The attributes of an offer's device, as the API has them.
        network: The addresses of a whole chip, as the API has them.
    """

    driver_name: str
    attributes: Callable[[Board, Offer], Mapping[str, Any]]
    network: Callable[[Chip], Mapping[str, Any] | None]

    def of_claim(
        self,
        claim: ResourceClaim,
        allocation: Iterable[Allocated],
        offers: Mapping[str, Offer],
        board: Board,
    ) -> Documents:
        """The metadata of a claim's devices (pure).

        Args:
            claim: The claim, which is allocated.
            allocation: Its devices.
            offers: The offers of its devices, by name.
            board: The chips of the node.
        """
        assert claim.status.allocation is not None, "it has an allocation"
        names = {
            base_request(result.request): result.request
            for result in claim.status.allocation.devices.results
            if result.driver == self.driver_name
        }
        devices: dict[str, dict[str, Any]] = {}
        for given in allocation:
            device = self._device(given, offers[given.device], board)
            for request in given.requests:
                devices.setdefault(request, {}).setdefault(given.device, device)
        meta = claim.metadata
        about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "generation": 1}
        pod_claim = meta.annotations.get(_POD_CLAIM, "")
        # Anybody can annotate a claim, and the name becomes a part of a path.
        named = {"podClaimName": pod_claim} if _LABEL.fullmatch(pod_claim) else {}
        return {
            request: {
                "metadata": about,
                **named,
                "requests": [{"name": names[request], "devices": [*found.values()]}],
            }
            for request, found in devices.items()
        }

    def renewed(self, entry: Entry, board: Board) -> Documents:
        """A claim's metadata with the addresses that its chips have now (pure).

        Of a chip whose addresses are not known the last known ones stay.
        """
        chips = {chip.device_node: chip for chip in board.chips if chip.is_listed}
        shared = {given.device for given in entry.allocation if given.share_id is not None}
        now = {
            device.device: network
            for device in entry.devices
            if device.partition is None and device.device not in shared and len(device.chips) == 1
            if (chip := chips.get(device.chips[0].device_node))
            if not chip.has_other_die(device.chips[0].uuid) and (network := self.network(chip))
        }
        fresh = {
            request: {
                **document,
                "requests": [
                    {
                        **one,
                        "devices": [
                            {**device, "networkData": now[device["name"]]}
                            if device["name"] in now
                            else device
                            for device in one["devices"]
                        ],
                    }
                    for one in document["requests"]
                ],
            }
            for request, document in entry.metadata.items()
        }
        return renewed(entry.metadata, fresh)

    def _device(self, given: Allocated, offer: Offer, board: Board) -> dict[str, Any]:
        device = {
            "driver": self.driver_name,
            "pool": given.pool,
            "name": given.device,
            "attributes": self.attributes(board, offer),
        }
        has_addresses = offer.partition is None and given.share_id is None and len(offer.chips) == 1
        if has_addresses and (network := self.network(offer.chips[0])):
            device["networkData"] = network
        return device
