"""Messages about a cluster: a text for people, with its code and facts for programs.

`kubectl npu -o json` has the codes and facts, which docs/reference/kubectl-npu.md lists as stable.
The facts are named as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Self

_NAMES: Final = 8


class Code(StrEnum):
    """A code, what it means, and the facts that come with it."""

    meaning: str
    facts: tuple[str, ...]

    def __new__(cls, code: str, meaning: str, *facts: str) -> Self:
        """A code."""
        member = str.__new__(cls, code)
        member._value_, member.meaning, member.facts = code, meaning, facts
        return member


class Said(str):
    """A text, or a part of one, with its code and facts; equal to another if the texts are."""

    __slots__ = ("code", "facts")

    code: Code
    facts: Mapping[str, Any]

    def __new__(cls, text: str, code: Code, /, **facts: Any) -> Self:
        """A text; *facts* are those that the code has."""
        assert facts.keys() == set(code.facts), f"{code} has {code.facts}"
        said = str.__new__(cls, text)
        said.code, said.facts = code, facts
        return said

    def within(self, text: str) -> Said:
        """A longer text with the same code and facts."""
        return Said(text, self.code, **self.facts)


def counted(count: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def few(names: Sequence[str]) -> str:
    """`npu-0, npu-1`, with a limit."""
    if len(names) <= _NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES])} and {len(names) - _NAMES} more"


class SaidError(Exception):
    """An error with a text that has a code."""

    def __init__(self, said: Said) -> None:
        super().__init__(said)
        self.said = said


class Outcome(Code):
    """What becomes of a pod or a claim."""

    GIVEN = "Given", "it has its devices"
    ENDED = "Ended", "the pod has ended, and needs no devices any more"
    FREE = "Free", "nothing is in its way: the scheduler can allocate"
    WAITS = "Waits", "no node can give it what it asks for, as things are"
    FAILS = "Fails", "the scheduler gives up with an error at each try"
    UNDECIDED = "Undecided", "it depends on what this program does not know; `message` names it"


class Step(Code):
    """What is true of the devices that a step leaves."""

    PUBLISHED = "Published", "they are in pools that can be used"
    CLASS = "DeviceClass", "a selector of the class takes them", "deviceClass"
    NODES = "Nodes", "they are on nodes that take the pod"
    SELECTOR = "Selector", "a selector of the claim takes them", "expression"
    CAPACITY = "Capacity", "they have these amounts at all", "capacities"
    TAINTS = "Taints", "they are healthy, or their taints tolerated"
    FREE = "Free", "no claim has them, or what they need of shares and counters"
    LEFT = "CountersLeft", "they have counters and shares left, for admin access"


class Action(Code):
    """What would help, by itself."""

    TOLERATE = "TolerateTaints", "tolerate the taints of devices, or heal these", "node"
    DROP_CONSTRAINT = "DropConstraint", "leave out a constraint", "claim", "constraint", "node"
    OPEN_NODE = "OpenNode", "let the node take the pod", "node", "obstacles"
    FEWER = "AskForFewer", "ask for so many devices", "claim", "request", "count", "node"
    PODS_END = "PodsEnd", "wait until all that use this claim end", "claim", "users", "node"
    CLAIMS_END = "ClaimsEnd", "wait until several of the claims on this node end", "node"
    DELETE_CLAIM = "DeleteClaim", "delete this claim, which no pod uses", "claim", "node"


_REQUEST = ("claim", "request", "wanted", "left", "mostOnOneNode")


class Why(Code):
    """Why a pod or a claim has what it has."""

    HAS_DEVICES = "HasDevices", "the claim is allocated"
    ON_NODE = "OnNode", "the pod has its node and its devices", "node", "phase"
    STARTING = "Starting", "its devices are being prepared, and its containers started", "node"
    DOES_NOT_START = "DoesNotStart", "the kubelet has warned, last by this Event", "node", "event"
    JOB_PLACED = "JobPlaced", "all its pods have nodes", "pods", "superPods"
    JOB_FITS = "JobFits", "these super pods have room for all its pods", "pods", "superPods"
    JOB_TOO_LARGE = (
        "JobDoesNotFit",
        "no super pod has room for all its pods, and this one for most",
        *("pods", "fits", "superPod"),
    )
    NO_CLAIMS = "NoClaims", "the pod has no claims", "node", "phase"
    POD_ENDED = "PodEnded", "the pod has ended", "node", "phase"
    POD_DELETED = (
        "PodBeingDeleted",
        "the pod is being deleted, and waits for these drivers, which publish none of its devices",
        *("node", "drivers"),
    )
    NOTHING_IN_THE_WAY = "NothingInTheWay", "these nodes can give what is asked for", "nodes"
    GATED = "SchedulingGated", "its scheduling gates are closed", "gates"
    CLAIM_MISSING = "ClaimMissing", "the pod names a claim that does not exist", "claim"
    CLAIM_NOT_MADE = "ClaimNotCreated", "no claim is made of the template", "template"
    CLAIM_NOT_ALLOCATED = "ClaimNotAllocated", "the pod has a node, its claim no devices", "claim"
    CLAIM_DELETED = "ClaimBeingDeleted", "the claim is being deleted", "claim"
    CLAIM_OF_OTHER = "ClaimOfAnotherPod", "the claim was made for another pod", "claim"
    CLAIM_FULL = "ClaimFull", "the claim has as many pods as it may", "claim", "pods"
    CLASS_MISSING = "DeviceClassMissing", "no such class exists", "request", "deviceClass"
    ADMIN_FORBIDDEN = "AdminAccessForbidden", "its namespace gives no admin access", "claim"
    NO_NODE = "NoNode", "there is no node"
    NO_NODE_TAKES_POD = "NoNodeTakesPod", "no node takes the pod, whatever devices it has"
    FEW_PUBLISHED = "NotEnoughPublished", "too few devices are in pools that can be used", *_REQUEST
    FEW_OF_CLASS = "NotEnoughOfClass", "too few are of the class", *_REQUEST
    FEW_ON_NODES = "NotEnoughOnNodes", "too few are on nodes that take the pod", *_REQUEST
    FEW_SELECTED = "NotEnoughMatching", "too few match a selector of the claim", *_REQUEST
    FEW_LARGE = "NotEnoughCapacity", "too few have the capacity", *_REQUEST
    FEW_HEALTHY = "NotEnoughHealthy", "too few are healthy or tolerated", *_REQUEST
    FEW_FREE = "NotEnoughFree", "too few are free", *_REQUEST
    FEW_TOGETHER = "NotEnoughTogether", "each request could be served by itself, not all together"
    DEVICE_TWICE_WANTED = "SameDeviceTwice", "requests of a claim want the same device"
    CONSTRAINED = "ConstraintUnsatisfied", "no free devices satisfy the constraints", "constraints"
    SELECTOR_FAILS = "SelectorFails", "a selector fails for a device", "error"
    ALL_FAILS = (
        "NotAllAvailable",
        "the request is for all devices, and one cannot be had",
        "request",
    )
    NOT_KNOWN = "NotKnown", "this program does not know what the scheduler makes of it"
    TOO_MANY = "TooManyCombinations", "there are too many combinations of devices to try"
    OLDER_SCHEDULER = "OlderScheduler", "what an older scheduler does is not known", "minor"
    NODES_UNREADABLE = "NodesUnreadable", "devices are not of one node, and nodes may not be read"


class Lost(Code):
    """Why a step takes devices away."""

    DIFFERS = "AttributesDiffer", "they have these values of what the selector reads", "values"
    CAPACITY_MISSING = "CapacityMissing", "they have no such capacity", "capacities"
    CAPACITY_SMALL = "CapacityTooSmall", "they have this much of it", "capacities"
    TAINTED = "Tainted", "they have taints that are not tolerated", "taints"
    HELD = "Held", "claims have them", "holders"
    SHARE_SMALL = "ShareTooSmall", "claims leave too little of their capacity", "left", "holders"
    COUNTERS_HELD = "CountersHeld", "claims have what they need of counters", "holders"
    SELECTOR_FAILS = "SelectorFails", "the selector fails for them", "error"


class Flaw(Code):
    """Why no device of a pool is allocated."""

    POOL_INCOMPLETE = "PoolIncomplete", "slices are missing", "driver", "pool", "slices", "wanted"
    SAME_NAME = "DuplicateDevice", "several devices have one name", "driver", "pool", "device"
    SAME_SET = "DuplicateCounterSet", "several counter sets have one name", "driver", "pool"
    NO_COUNTER = (
        "CounterMissing",
        "a device takes from a counter that is not there",
        *("driver", "pool", "device", "counterSet", "counter"),
    )


class OfNode(Code):
    """What a node says of a pod and its claims."""

    REFUSED = "NodeRefusesPod", "the node does not take the pod", "node", "obstacles"
    UNSATISFIED = "ClaimsUnsatisfied", "it cannot satisfy the claims"
    SCHEDULER_FAILS = "SchedulerFails", "the scheduler gives up at it"
    NODE_UNDECIDED = "Undecided", "this program cannot tell"


class Obstacle(Code):
    """Why a node does not take the pod."""

    CORDONED = "Cordoned", "the node is cordoned"
    NODE_TAINTED = "NodeTainted", "the pod does not tolerate a taint of the node", "taint"
    NODE_SELECTOR = "NodeSelectorDiffers", "the node lacks a label that it wants", "label", "value"
    NODE_AFFINITY = "NodeAffinityDiffers", "the node is not what the node affinity wants"
    RESOURCE_MISSING = "ResourceMissing", "the node has no such resource", "resource"
    RESOURCE_SMALL = (
        "ResourceTooSmall",
        "the node has too little left of a resource",
        *("resource", "left", "total", "wanted"),
    )
    DEVICES_ELSEWHERE = "DevicesElsewhere", "the claim has devices of other nodes", "claim"


class Doubt(Code):
    """What was not weighed."""

    FORBIDDEN = "MayNotRead", "you may not read such objects", "verb", "resource"
    UNREADABLE = "Unreadable", "an object cannot be read and looks absent", "kind", "name", "error"
    MORE_UNREADABLE = "MoreUnreadable", "so many more cannot be read", "resource", "count"
    POD_AFFINITY = "PodAffinity", "the pod's affinity to other pods"
    TOPOLOGY_SPREAD = "TopologySpread", "its topology spread constraints"
    OTHER_SCHEDULER = "OtherScheduler", "what its scheduler does differently", "scheduler"
