"""What the pages of docs/reference say that the code does not: meanings, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dev.rig.boards import a3, die
from dev.site.unhealthy_boards import board, fault, npu, separated
from trio_npu_dra.agent.devices.taints import NETWORK, UNMONITORED
from trio_npu_dra.agent.holds.hold import Holder, HolderKind, SharedClaim
from trio_npu_dra.agent.report.news import News, Reason, news, record_news, shared_news
from trio_npu_dra.ascend.dcmi.errors import IdUnknown, LibraryMissing, NotPermitted
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base import errors

# --- flags ---------------------------------------------------------------------------------------

FLAGS: Final = {
    "container_libraries": "[What a container gets](containers.md#cann-and-libraries)",
    "device_plugin": "[Ask without a claim](../guides/without-a-claim.md)",
    "extra_mount": "[What a container gets](containers.md#more-of-the-host)",
    "http_port": "[Metrics and probes](../metrics.md)",
    "label_node": "[Keep the pods of a job together](../guides/placement.md)",
    "partitioning": "[Partitions](partitions.md#cut-for-claims)",
    "sharing": "[Share an NPU](../guides/share.md#shares-that-the-scheduler-counts)",
    "taint_effect": "[Fault levels and taints](taints.md)",
}
"""Where to read more about a flag, by its field."""

COMPLETION: Final = """\
## Completion

`npu-dra completion SHELL` prints the script that lets bash, zsh or fish complete commands, flags
and their values; it needs the extra `cli`. Write the line for your shell into its file:

| shell | file | line |
| --- | --- | --- |
| bash | `~/.bashrc` | `eval "$(npu-dra completion bash)"` |
| zsh | `~/.zshrc`, behind `compinit` | `eval "$(npu-dra completion zsh)"` |
| fish | `~/.config/fish/config.fish` | `npu-dra completion fish \\| source` |

`kubectl npu` is completed by [kubectl](../kubectl-npu.md#install).
"""

EXIT_CODES: Final = """\
After 2, correct what you gave: the same words fail again. What 1 tells of is on the node or in the
cluster. Only `doctor` judges; the other commands show what is there,
and end with 0 although an NPU is unhealthy or a pod waits.
"""

# --- levels and taints ---------------------------------------------------------------------------

TAINTS_HEAD: Final = """\
The driver judges each fault code by the levels of Huawei's MindCluster, mildest first, and taints
the NPU by `--taint-effect`. [Find and release unhealthy NPUs](../guides/health.md) shows the
commands and outputs.

The taint of a fault has the key `npu.huawei.com/fault` and the level as its value. Of several
faults the one with the strongest effect decides. "codes" is how many codes of Huawei's table have
the level.
"""

LEVELS: Final = {
    FaultLevel.NORMAL: "there is no fault",
    FaultLevel.NOT_HANDLE: "no action is needed",
    FaultLevel.SUB_HEALTH: "the NPU works, and may be slower",
    FaultLevel.RESTART_REQUEST: "the running request should be repeated",
    FaultLevel.RESTART_BUSINESS: "the work on the NPU should be restarted",
    FaultLevel.FREE_RESTART_NPU: "the NPU needs a reset as soon as no pod uses it",
    FaultLevel.RESTART_NPU: "the work must end, and the NPU needs a reset",
    FaultLevel.PRE_SEPARATE_NPU: "the NPU gets no new work, and may finish its present work",
    FaultLevel.SEPARATE_NPU: "the NPU must not be used",
    FaultLevel.MANUALLY_SEPARATE_NPU: "faults came too often: the NPU must not be used until "
    "`npu-dra health release` returns it to service",
}

TAINTS_STATES: Final = """\
A code that the table lacks counts as `SeparateNPU`, or as `NotHandleFault` if the Ascend driver
calls it minor. Ports of a 950 that are down cause further faults with codes of their own, as in
MindCluster:

| fault | derived code | level |
|---|---|---|
| a UB port is down (`81B18603`) for 5 s, but not those of all NPUs | `20001002` | `SeparateNPU` |
| UB ports of all NPUs are down, for each NPU until its own is up | `20000002` | `SubHealthFault` |
| the Ascend driver lists `81078607` once: one UBoE port is down | `110000002` | `SubHealthFault` |
| it lists that code more than once | `110001024` | `PreSeparateNPU` |

Two more states have taints of their own:
"""

STATES: Final = {
    UNMONITORED: "the NPU's health cannot be read",
    NETWORK: "the NPU's RoCE port has a problem",
}

TAINTS_TAIL: Final = """\
| effect | does |
|---|---|
| `None` | nothing; it only informs |
| `NoSchedule` | claims that do not tolerate it do not get the NPU |
| `NoExecute` | the same, and pods that have the NPU by a claim in their spec are evicted \
([not those with `limits`](../guides/unhealthy.md#what-happens-to-a-job)) |

With `--evict-after` a fault must last that many seconds before its effect is `NoExecute`; until
then it is `NoSchedule`.

`--taint-effect=SeparateNPU=NoSchedule,Network=None` changes effects; what it does not name keeps
its default. An API server that keeps no taints (Kubernetes 1.34 and 1.35, without the feature gate
`DRADeviceTaints`) gets a slice without the NPU instead, and no pod is evicted.
[`tolerates-fault.yaml`](../../k8s/examples/tolerates-fault.yaml) is a claim that tolerates faults.

A device that stays in the pool only for its present holder has the taint
`npu.huawei.com/leaving:NoSchedule`, whatever `--taint-effect` says: no new claim gets it. Its NPU
moves to a device plugin resource, is gone, or is now offered in another way (`--partitioning`, the
multi-die policy, or vNPUs that were cut by hand). The device leaves the pool when it is released.
"""

# --- Events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What people are to know of an Event.

    Attributes:
        about: The objects that it is on.
        text: When it comes, and what to do.
    """

    about: str
    text: str


_BOTH: Final = "the Node and each claim that holds the NPU"

EVENTS_HEAD: Final = """\
The driver writes Events on the Node and on claims, with `npu.huawei.com` as their source:

```sh
kubectl get events --all-namespaces --field-selector source=npu.huawei.com
kubectl describe resourceclaim NAME
```

What repeats is counted in one Event, which is written every ten seconds at most. Faults that began
before the driver started are not said again.
"""

EVENTS: Final = {
    Reason.FAULT: Told(
        _BOTH,
        "A fault came, or its level rose. The level says what Huawei prescribes "
        "([levels](taints.md)). Levels below `SubHealthFault` are not told.",
    ),
    Reason.SEPARATED: Told(
        _BOTH,
        "A fault came so often that the NPU stays separated, also after the fault has ended. Have "
        "the NPU looked at, then release it with the command in the message.",
    ),
    Reason.UNMONITORED: Told(
        _BOTH,
        "The NPU does not tell how it is: it boots, or a call into the Ascend driver fails or "
        "hangs. If it lasts, `npu-dra health` on the node names the call.",
    ),
    Reason.RECOVERED: Told(
        _BOTH, "Nothing is wrong with the NPU any more, and its taints are gone."
    ),
    Reason.POLICY_CHANGED: Told(
        "the Node",
        "The multi-die policy of A3 was changed by hand ([Ask for a card](../guides/card.md)). "
        "NPUs in use keep their form until they are released; claims that wait may need the other "
        "form.",
    ),
    Reason.SEVERAL_PODS: Told(
        "the claim",
        "Several pods use the claim, and its NPU is not shared. Give each pod a claim of its own, "
        "or share the NPU ([Share an NPU](../guides/share.md)).",
    ),
    Reason.RECORD_SET_ASIDE: Told(
        "the Node",
        "The driver cannot read records of claims, because they are damaged or of another version "
        "([Broken record](../reliability.md#broken-record)).",
    ),
}


def event_example(reason: Reason) -> str:
    """A message that the driver writes with this reason."""
    (one,) = (each for each in _news() if each.reason is reason)
    return one.message


def _news() -> list[News]:
    """One event for each reason."""
    well, union = board(npu(3)), a3(die(2), die(3))
    said = [
        news(well, board(npu(3, fault())), since=0),
        news(well, board(npu(3, separated())), since=0),
        news(well, board(npu(3, unmonitored="dcmi_get_device_health timed out")), since=0),
        news(board(npu(3, fault())), well, since=0),
        news(union, replace(union, multi_die_policy=MultiDiePolicy.INDEPENDENT), since=0),
    ]
    holder = Holder(kind=HolderKind.CLAIM, namespace="ml", name="train", uid="1")
    claim = SharedClaim(holder=holder, devices=("npu-3",), pods=("train-0", "train-1"))
    shared = shared_news(claim, well, ())
    records = record_news(
        {"5f0c…": "version: 3 is of another version of the driver, this one knows 2"}
    )
    of_chips = (one for several in said for one in several)
    return [*of_chips, *([shared] if shared else []), records]


# --- errors --------------------------------------------------------------------------------------

ERRORS_HEAD: Final = """\
## A pod cannot have its NPU

`kubectl describe pod` shows these lines, after `FailedPrepareDynamicResources`, or
`UnexpectedAdmissionError` for a device plugin's resource. `…` stands for names and numbers. A wrong
config has lines of its own: [when a config is wrong](../config.md#when-a-config-is-wrong).
"""

ERRORS_OF_THE_NODE: Final = """\
## Something is wrong on the node

These are in the driver's log (`kubectl -n ascend-dra logs`), or a command prints them. Each line
names the path, flag, call or request.
"""

OF_THE_NODE: Final = (
    errors.ConfigError,
    errors.ControlError,
    LibraryMissing,
    NotPermitted,
    IdUnknown,
    errors.Forbidden,
    errors.Unavailable,
    errors.KubeletSilent,
    errors.StorageError,
    errors.LockHeld,
    errors.ForeignFile,
    errors.RecordCorrupt,
)
"""Errors that an operator can do something about, besides those of claims."""

ERRORS: Final = {
    "ClaimError": "Ask for what the message names, in a new claim: the spec of a claim cannot be "
    "changed.",
    "ClaimNotAllocated": "The pod and its claim do not fit together any more. Delete the pod; its "
    "controller creates another.",
    "UnknownDevice": "The NPU has left the node, or the node was renamed. Delete the pod, and the "
    "scheduler chooses again.",
    "InvalidOpaqueConfig": "Correct the config in the claim or class, and recreate the claim.",
    "DeviceHeld": "Wait for the pods of the claim that is named, or delete them. If no such claim "
    "exists, `npu-dra health` on the node shows who holds the NPU.",
    "HoldGone": "Wait: the kubelet tries again.",
    "ClaimUnavailable": "Wait for a minute. If the message stays, do what it names: an NPU that "
    "does not answer is in `npu-dra health`, and one in use must be freed.",
    "DevicesUnknown": (
        "Wait: the driver has just started, or the NPU is away. If it lasts, `npu-dra health` or "
        "the log says why."
    ),
    "AllocationRefused": "Delete the pod: the kubelet chooses among the NPUs that there are now.",
    "HostFileMissing": "Load the Ascend driver on the node (`npu-smi info` must work there); "
    "the pod starts by itself then. With `driverMounts: false` a claim needs only device nodes.",
    "ConfigError": "Correct the flag, variable or file that is named.",
    "ControlError": "Run the command as root on a node where the driver runs, with the flags that "
    "it was given.",
    "LibraryMissing": "Install the Ascend driver, or set `--host-root` to the host's root.",
    "NotPermitted": "Run the driver as root and privileged, as its DaemonSet does.",
    "IdUnknown": "Look at the card and at the kernel's log; the driver finds it again by itself.",
    "Forbidden": "Apply `k8s/base` whole: roles and policies belong to it.",
    "Unavailable": "Nothing, if it passes: the driver asks again. Else look at the API server.",
    "KubeletSilent": "Look at the kubelet's log, and at the folder of the socket.",
    "StorageError": "Make room or repair the disk at the path; the driver tries again "
    "([Full disk](../reliability.md#full-disk)).",
    "LockHeld": "Look for a second instance, or a stopped process, on the node.",
    "ForeignFile": "Remove the object at the path; it does not belong to the driver "
    "([Foreign files](../reliability.md#foreign-files-and-lost-folders)).",
    "RecordCorrupt": "Delete the pods of the claim that is named "
    "([Broken record](../reliability.md#broken-record)).",
}
"""What to do, by the name of the error."""
