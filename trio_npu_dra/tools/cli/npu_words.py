"""What `kubectl npu` prints for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import DeviceTaint
from trio_npu_dra.tools.cli.table import Line, Part, Style, Styled, columns, parts
from trio_npu_dra.tools.cluster.explain.answer import (
    ClaimReport,
    Explanation,
    GivenDevice,
    event_words,
)
from trio_npu_dra.tools.cluster.explain.funnel import (
    Funnel,
    FunnelStep,
    ask_words,
    loss_words,
    names_of,
)
from trio_npu_dra.tools.cluster.explain.job import JobExplanation, SuperPod
from trio_npu_dra.tools.cluster.fleet import DeviceRow, DeviceState, Diagnosis, NodeRow, Ring
from trio_npu_dra.tools.cluster.inventory import NOT_EVICTED
from trio_npu_dra.tools.cluster.objects import taint_words
from trio_npu_dra.tools.cluster.said import Outcome, counted, few

_NODE = ("NODE", "NPUS", "MODEL", "MEMORY", "FREE", "USED", "UNHEALTHY", "WHOLE RINGS")
_SUPER_POD = ("SUPER POD", "NODES", "NPUS", "FREE", "FREE BY NODE", "PODS THERE", "MORE FIT")
_HOLDER = ("HELD BY", "NODE", "DEVICES")
_DEVICE = ("NODE", "DEVICE", "MODEL", "MEMORY", "STATE", "RING", "NUMA", "TAINTS", "HELD BY")
_MEANS: Mapping[Outcome, Part] = {
    Outcome.GIVEN: Styled("has its devices", Style.GOOD),
    Outcome.ENDED: "has ended",
    Outcome.FREE: Styled("can be served", Style.GOOD),
    Outcome.WAITS: Styled("waits", Style.WARNING),
    Outcome.FAILS: Styled("fails", Style.BAD),
    Outcome.UNDECIDED: Styled("is undecided", Style.WARNING),
}
_STATES: Mapping[DeviceState, Part] = {
    DeviceState.FREE: Styled("free", Style.GOOD),
    DeviceState.USED: "used",
    DeviceState.SHARED: Styled("shared", Style.WARNING),
}
_NODES = 12


def summary(nodes: Sequence[NodeRow], driver: str) -> Line:
    """`12 devices of npu.huawei.com on 2 nodes: 5 free, 7 used, 1 unhealthy`."""
    whose = driver or "any driver"
    if not nodes:
        return f"no device of {whose} is published"
    devices = counted(sum(len(node.whole) for node in nodes), "device")
    free = f"{sum(node.free for node in nodes)} free"
    used = f"{sum(node.used for node in nodes)} used"
    unhealthy = sum(node.unhealthy for node in nodes)
    about = f"{devices} of {whose} on {counted(len(nodes), 'node')}"
    return f"{about}: {free}, {used}, ", _red_unless_zero(unhealthy, " unhealthy")


def _red_unless_zero(count: int, words: str = "") -> str | Styled:
    return Styled(f"{count}{words}", Style.BAD) if count else f"{count}{words}"


def fleet_lines(nodes: Sequence[NodeRow]) -> Iterator[Line]:
    """A row for each node, and one for each holder on it."""
    yield from columns([_titles(_NODE), *map(_node_cells, nodes)])
    holders = [row for node in nodes for row in _holder_rows(node)]
    if holders:
        yield ""
        yield from columns([_titles(_HOLDER), *holders])
    yield from _other_lines(nodes)


def _titles(words: Sequence[str]) -> tuple[Line, ...]:
    return tuple((Styled(word, Style.TITLE),) for word in words)


def _other_lines(nodes: Sequence[NodeRow]) -> Iterator[Line]:
    """What is wrong: devices that are withdrawn and held, pools without use, equal addresses."""
    withdrawn = {
        node.node: [row.device.name for row in node.devices if not row.is_published]
        for node in nodes
    }
    lines = (f"{node}: {', '.join(names)}" for node, names in withdrawn.items() if names)
    yield from _listed("held, and not published any more", lines)
    flaws = (f"{node.node}: {flaw}" for node in nodes for flaw in node.flaws)
    yield from _listed("no devices are allocated here (Kubernetes 1.36 and later)", flaws)
    having: dict[str, list[str]] = {}
    for node in nodes:
        for row in node.devices:
            for address in row.addresses:
                having.setdefault(address, []).append(f"{node.node}/{row.id.name}")
    equal = (f"{address}: {few(names)}" for address, names in having.items() if len(names) > 1)
    yield from _listed("NPUs have one address: no job can have both", equal)


def _node_cells(node: NodeRow) -> tuple[Line, ...]:
    return (
        node.node,
        str(len(node.whole)),
        _distinct(row.model for row in node.whole),
        _distinct(row.memory for row in node.whole),
        str(node.free),
        str(node.used),
        (_red_unless_zero(node.unhealthy),),
        _rings(node.rings),
    )


def _distinct(words: Iterable[str]) -> str:
    return ", ".join(word for word in dict.fromkeys(words) if word != "-") or "-"


def _rings(rings: Sequence[Ring]) -> str:
    if not rings:
        return "-"
    whole = [f"{ring.name} ({ring.size})" for ring in rings if ring.is_whole]
    return f"{len(whole)} of {len(rings)}" + (f": {', '.join(whole)}" if whole else "")


def _holder_rows(node: NodeRow) -> Iterator[tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}  # an NPU's row has the holders of its partitions too
    for row in node.devices:
        for one in row.holders:
            found.setdefault(one.words, {})[one.result.device] = None
    for words, names in found.items():
        yield words, node.node, ", ".join(names)


def device_lines(nodes: Sequence[NodeRow]) -> Iterator[Line]:
    """A row for each device."""
    rows = (_device_cells(node.node, row) for node in nodes for row in node.devices)
    yield from columns([_titles(_DEVICE), *rows])
    yield from _other_lines(nodes)


def _device_cells(node: str, row: DeviceRow) -> tuple[Line, ...]:
    return (
        node,
        row.device.name,
        row.model,
        row.memory,
        _state(row),
        row.attribute(fact_names.TOPOLOGY_GROUP),
        row.attribute(fact_names.NUMA_NODE),
        ", ".join(row.taints) or "-",
        ", ".join(dict.fromkeys(one.words for one in row.holders)) or "-",
    )


def _state(row: DeviceRow) -> Line:
    if not row.is_published:
        return f"{row.state}, withdrawn"
    state = _STATES[row.state]
    return (state, ", ", Styled("unhealthy", Style.BAD)) if row.is_unhealthy else (state,)


def explanation_lines(explanation: Explanation) -> Iterator[Line]:
    """The sentence, then its evidence."""
    subject = Styled(explanation.subject, Style.TITLE)
    yield subject, " ", _MEANS[explanation.outcome], f": {explanation.sentence}"
    for report in explanation.claims:
        yield from _claim_lines(report)
    shown = explanation.nodes[:_NODES]
    able = Styled("could serve it", Style.GOOD)
    yield from _listed("nodes", ((f"{name}: ", why or able) for name, why in shown))
    if len(explanation.nodes) > _NODES:
        yield f"  and {len(explanation.nodes) - _NODES} more"
    yield from _listed("any one of these would help", explanation.helps)
    yield from doubt_lines(explanation.doubts)
    yield from _listed("events", map(event_words, explanation.events))


def job_lines(subject: str, job: JobExplanation) -> Iterator[Line]:
    """The sentence, what is free by super pod, and what is in the way."""
    yield Styled(subject, Style.TITLE), " ", _MEANS[job.outcome], f": {job.sentence}"
    if job.super_pods:
        yield ""
        yield from columns([_titles(_SUPER_POD), *map(_super_pod_cells, job.super_pods)])
    if job.blocked:
        yield ""
        yield "the first pod that does not fit there, once the others have their devices"
        yield from explanation_lines(job.blocked)
    else:
        yield from doubt_lines(job.doubts)


def _super_pod_cells(one: SuperPod) -> tuple[Line, ...]:
    counts = sorted(Counter(node.free for node in one.nodes).items(), reverse=True)
    return (
        "-" if one.id is None else str(one.id),
        str(len(one.nodes)),
        str(sum(len(node.whole) for node in one.nodes)),
        str(sum(node.free for node in one.nodes)),
        ", ".join(f"{free} on {counted(nodes, 'node')}" for free, nodes in counts),
        str(one.placed),
        str(one.fits),
    )


def doubt_lines(doubts: Iterable[str]) -> Iterator[Line]:
    """What an answer does not weigh."""
    return _listed("not weighed here", doubts)


def _listed(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    found = [("  ", *parts(line)) for line in lines]
    if found:
        yield ""
        yield title
        yield from found


def _claim_lines(report: ClaimReport) -> Iterator[Line]:
    yield ""
    yield Styled(f"claim {report.claim.title}", Style.TITLE), f": {report.state}"
    if report.given:
        rows = [_given_cells(one) for one in report.given]
        yield from (("  ", *parts(line)) for line in columns(rows))
        if report.funnels:
            yield "  what it could choose from, were it allocated now:"
    for one in report.funnels:
        yield f"  request {one.wanted.title}: {ask_words(one.wanted)}"
        yield from _funnel_lines(one)


def _given_cells(one: GivenDevice) -> tuple[str, ...]:
    facts = ", ".join(filter(None, (one.facts, one.how)))
    return one.result.request, f"{one.id.name} of {one.id.pool}", facts, one.now


def _funnel_lines(one: Funnel) -> Iterator[Line]:
    width = max(len(str(step.left)) for step in one.steps)
    for at, step in enumerate(one.steps):
        mark = ("  ", Styled("<- too few", Style.BAD)) if at == one.short else ()
        most = ""
        if step.left and step.most < step.left:
            most = f", at most {step.most} on one node"
        yield f"    {step.left:>{width}} {step.counting}{most}", *mark
        yield from (f"    {' ' * width}   {line}" for line in _losses(step))


def _losses(step: FunnelStep) -> Iterator[Line]:
    for loss in step.losses[:4]:
        devices = f" ({names_of(loss.devices)})" if loss.devices else ""
        yield f"{loss_words([loss])}{devices}"
    if len(step.losses) > 4:
        yield f"and {len(step.losses) - 4} more reasons"


def diagnosis_lines(unhealthy: Diagnosis) -> Iterator[Line]:
    """What is wrong with a device, and its holders."""
    taints = ", ".join(unhealthy.row.taints)
    title = Styled(f"{unhealthy.row.id.name} of {unhealthy.node}", Style.TITLE)
    if not unhealthy.row.is_published:
        yield title, " is not published any more, and a claim holds it"
    elif unhealthy.row.is_unhealthy:
        yield title, " is ", Styled("unhealthy", Style.BAD), f": {taints}"
    elif unhealthy.row.is_barred:
        yield title, f" is not unhealthy, and no claim gets it: {taints}"
    else:
        yield title, " is ", Styled("not unhealthy", Style.GOOD), ": no taint keeps claims away"
    yield from _listed("taints", map(_since, unhealthy.row.device.taints))
    evicts = any(taint.effect == "NoExecute" for taint in unhealthy.row.device.taints)
    touched = (
        f"{one.words}: {NOT_EVICTED}" if evicts and one.claim.is_implicit else one.words
        for one in unhealthy.row.holders
    )
    yield from _listed("touched", dict.fromkeys(touched))
    yield from _listed("events", map(_dated, unhealthy.events))
    yield from doubt_lines(unhealthy.doubts)


def _since(taint: DeviceTaint) -> str:
    return f"{taint_words(taint)} since {taint.time_added or 'an unknown time'}"


def _dated(event: Event) -> str:
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{event.when or '-'} {event_words(event)}{times}"
