"""What containers can read of a claim's devices (`kit.base.device_metadata` has the form).

A prepare on any instance writes the addresses that it knows. Only the instance that publishes
renews them: two that read different addresses of a chip would rewrite each other's for ever.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trio_npu_dra.agent.holds.entry import Allocated, Entry, HeldDevice
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.api.claims import base_request
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.api.paths import is_label
from trio_npu_dra.kit.base.device_metadata import Documents, renewed

_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetadata:
    """Says what containers can read of devices.

    Attributes:
        driver_name: The driver of our results in an allocation.
        attributes: The attributes of an offer's device, in the form of the API.
        network: The addresses of a whole chip, in that form too; None if it has none, or they are
            not known.
    """

    driver_name: str
    attributes: Callable[[Offer, Board], Mapping[str, Any]]
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
        named = {"podClaimName": pod_claim} if is_label(pod_claim) else {}
        return {
            request: {
                "metadata": about,
                **named,
                "requests": [{"name": names[request], "devices": [*found.values()]}],
            }
            for request, found in devices.items()
        }

    def renewed(self, entry: Entry, board: Board) -> Documents:
        """A claim's metadata with the addresses that its chips have now.

        Those of a chip whose addresses are not known stay.
        """
        shared = {given.device for given in entry.allocation if given.share_id is not None}
        now = {
            device.device: network
            for device in entry.devices
            if device.device not in shared and (held := _own_chip(device)) is not None
            if (chip := board.by_name.get(held.name)) is not None and chip.is_listed
            if not chip.has_other_die(held.uuid) and (network := self.network(chip)) is not None
        }
        fresh = {
            request: _readdressed(document, now) for request, document in entry.metadata.items()
        }
        return renewed(entry.metadata, fresh)

    def _device(self, given: Allocated, offer: Offer, board: Board) -> dict[str, Any]:
        chip = _own_chip(offer) if given.share_id is None else None
        network = self.network(chip) if chip is not None else None
        return {
            "driver": self.driver_name,
            "pool": given.pool,
            "name": given.device,
            "attributes": self.attributes(offer, board),
            **({} if network is None else {"networkData": network}),
        }


def _own_chip(device: Offer | HeldDevice) -> Chip | None:
    """The chip of a whole NPU; None of a partition and of a module, which have no address."""
    return device.chips[0] if device.partition is None and len(device.chips) == 1 else None


def _readdressed(
    document: Mapping[str, Any], networks: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The metadata of a request with these addresses, by device."""
    (request,) = document["requests"]
    devices = [
        {**one, "networkData": networks[one["name"]]} if one["name"] in networks else one
        for one in request["devices"]
    ]
    return {**document, "requests": [{**request, "devices": devices}]}
