"""Pods of claims and of a device plugin resource that churn while everything restarts.

A container opens its NPUs as long as it runs, and the simulated library has the kernel's rule: a
second container is refused. It notes that on the node, with what it has and when, so that nothing
is lost with a pod.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dev.cluster.api import Object
from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import NAME, NAMESPACE, NPUS, Driver
from tests.e2e.resources import asking
from tests.e2e.space import Space, claim, container, pod, request

SELECTOR = "0-3"
OF_RESOURCE = frozenset(range(4))
OF_POOL = frozenset(range(4, NPUS))
NOTES = "/var/lib/npu-openers"
"""The folder on the node in which each container writes a file of what it did."""
AT_ONCE = 5
"""Pods of a kind at a time; they ask for more NPUs than there are."""
USES = """
say() { echo "$(date +%s.%N) $*" >>/notes/NAME; }
finish() { sleep SLOW; kill $smi; wait $smi; say end; exit 0; }
say begin $(ls -d /dev/davinci[0-9]*)
npu-smi info watch >/tmp/seen 2>&1 & smi=$!
trap finish TERM
until [ -s /tmp/seen ]; do sleep 0.05; done
if grep -q 'ret is' /tmp/seen; then say refused $(cat /tmp/seen); exit 1; fi
say has
sleep LIFE & wait $!
finish
"""
"""The container's program: it holds its NPUs open, and ends after a while or by SIGTERM."""
REFUSED = "UnexpectedAdmissionError"
"""The kubelet's reason for a pod that it refuses while the resource has no plugin."""
CUT_OFF = "StartError"
"""The kubelet's reason for a container that its own restart interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a container did.

    Attributes:
        name: Of its pod.
        chips: Those that it had.
        began: When it ran, in seconds.
        ended: When it was done with its NPUs; infinite if it could not say so.
        refusal: Why it could not open them; empty if it could.
    """

    name: str
    chips: frozenset[int]
    began: float
    ended: float
    refusal: str


@dataclass
class Churn:
    """Pods of both kinds that come and go; a thread of its own does `run`.

    Attributes:
        space: Where they are.
        node: Which has them.
        counts: How many NPUs each pod asked for that was created.
        ends: How pods ended, and how often.
        wrong: Pods that ended as none should.
        is_over: Set when no new ones are wanted.
        no_force: Set while no pod is deleted by force.
    """

    space: Space
    node: NodeAccess
    counts: dict[str, int] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    no_force: threading.Event = field(default_factory=threading.Event)
    _chance: random.Random = field(default_factory=lambda: random.Random(13))  # noqa: S311
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def notes(self) -> Path:
        """Where their containers note what they do."""
        return self.node.root / Path(NOTES).relative_to("/")

    def run(self) -> None:
        """Create pods and delete them until it is over, and until all have ended then."""
        pods: list[Object] = []
        while pods or not self.is_over.is_set():
            self._end(pods)
            if not self.is_over.is_set():
                for kind in ("claim", "resource"):
                    here = sum(each["metadata"]["name"].startswith(kind) for each in pods)
                    for _ in range(AT_ONCE - here):
                        self._begin(kind)
            time.sleep(0.3)  # the pace of the churn
            pods = self.space.cluster.objects("pods", namespace=self.space.name)

    def _begin(self, kind: str) -> None:
        name, count = f"{kind}-{next(self._numbers)}", self._chance.randint(1, 3)
        self.counts[name] = count
        command = self._command(name)
        if kind == "claim":
            self.space.apply(claim(name, request(count=count)))
            about = pod(name, name, containers=[container("main", name, command=command)])
        else:
            about = pod(name, containers=[asking("main", count, command=command)])
        about["spec"]["containers"][0]["volumeMounts"] = [{"name": "notes", "mountPath": "/notes"}]
        folder = {"path": NOTES, "type": "DirectoryOrCreate"}
        about["spec"]["volumes"] = [{"name": "notes", "hostPath": folder}]
        self.space.apply(about)

    def _command(self, name: str) -> tuple[str, ...]:
        life, slow = self._chance.uniform(0.5, 4), self._chance.choice((0, 0, 0.8))
        script = USES.replace("NAME", name).replace("LIFE", f"{life:.1f}")
        return "sh", "-c", script.replace("SLOW", str(slow))

    def _end(self, pods: list[Object]) -> None:
        """Judge and delete pods that have ended, and delete a few others, half of them by force.

        A pod with the resource is deleted by force only after it has opened its NPUs: no driver can
        see an earlier one, whose NPUs the kubelet gives away before its container has ended.
        """
        for each in pods:
            name, phase = each["metadata"]["name"], each["status"]["phase"]
            if "deletionTimestamp" in each["metadata"]:
                continue
            if phase in {"Succeeded", "Failed"}:
                self._judge(each)
                self._delete(name)
            elif self._chance.random() < (0.05 if phase == "Running" else 0.02):
                is_seen = name.startswith("claim") or self._has_opened(name)
                is_fine = is_seen and not self.no_force.is_set()
                grace = self._chance.choice((0, 5)) if is_fine else 5
                self.ends["deleted by force" if grace == 0 else "deleted"] += 1
                self._delete(name, grace=grace)

    def _has_opened(self, name: str) -> bool:
        place = self.notes / name
        return place.exists() and " has" in place.read_text()

    def _judge(self, about: Object) -> None:
        name, status = about["metadata"]["name"], about["status"]
        end = str(status.get("reason", status["phase"]))
        states = [each["state"] for each in status.get("containerStatuses", [])]
        if any(state.get("terminated", {}).get("reason") == CUT_OFF for state in states):
            end = CUT_OFF
        self.ends[end] += 1
        is_refused = end == REFUSED and name.startswith("resource")
        if end not in {"Succeeded", CUT_OFF} and not is_refused:
            self.wrong.append(f"{name}: {status}")

    def _delete(self, name: str, *, grace: int | None = None) -> None:
        self.space.begin_delete("pods", name, grace=grace)
        if name.startswith("claim"):
            self.space.begin_delete("resourceclaims", name)


@contextmanager
def churning(space: Space, node: NodeAccess) -> Iterator[Churn]:
    """Pods churn on a node meanwhile; afterwards all have ended."""
    churn = Churn(space, node)
    node.execute("rm", "-rf", NOTES)
    errors: list[Exception] = []

    def run() -> None:
        try:
            churn.run()
        except Exception as error:  # noqa: BLE001 - it is raised below, in the test's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield churn
    finally:
        churn.is_over.set()
        thread.join(120)
    if errors:
        raise errors[0]
    assert not thread.is_alive(), "a pod does not end"


def roll_out(driver: Driver) -> None:
    """The DaemonSet is updated."""
    driver.cluster.kubectl("rollout", "restart", f"daemonset/{NAME}", "--namespace", NAMESPACE)
    driver.wait_rolled_out(devices=len(OF_POOL))


def restart_kubelet(driver: Driver) -> None:
    """The kubelet dies and starts again."""
    times = driver.registrations()
    driver.cluster.node.restart_kubelet()
    driver.wait_registered(times + 1)


def disturb(driver: Driver, churn: Churn, seconds: float) -> Counter[str]:
    """Restart one thing after the other for so long, each once at least; returns how often.

    The kubelet unprepares what was deleted by force while it was away, but a minute later: only
    under a long churn is that done.
    """
    ends, done = time.monotonic() + seconds, Counter[str]()
    restarts = (Driver.kill, restart_kubelet, roll_out, Driver.kill, roll_out)
    for restart in itertools.cycle(restarts):
        if time.monotonic() > ends and len(done) == len(set(restarts)):
            break
        time.sleep(2)  # for pods to run undisturbed
        if restart is restart_kubelet and seconds < 60:
            churn.no_force.set()
        restart(driver)
        churn.no_force.clear()
        done[restart.__name__] += 1
    return done


def opened(churn: Churn) -> list[Opened]:
    """What containers noted."""
    found = []
    for path in sorted(churn.notes.iterdir()):
        lines = [line.split(maxsplit=2) for line in path.read_text().splitlines()]
        said = {words[1]: words for words in lines}
        chips = said["begin"][2].split()
        found.append(
            Opened(
                name=path.name,
                chips=frozenset(int(node.removeprefix("/dev/davinci")) for node in chips),
                began=float(said["begin"][0]),
                ended=float(said["end"][0]) if "end" in said else float("inf"),
                refusal=said["refused"][2] if "refused" in said else "",
            )
        )
    return found


def overlaps(every: list[Opened]) -> list[str]:
    """Containers that had a chip while another had it, by what they noted themselves."""
    found = []
    for chip in range(NPUS):
        users = sorted((each for each in every if chip in each.chips), key=lambda each: each.began)
        found += [
            f"chip {chip}: {one} and {other}"
            for one, other in itertools.pairwise(users)
            if one.ended != float("inf") and other.began < one.ended
        ]
    return found


def judge(churn: Churn, every: list[Opened]) -> None:
    """No NPU was opened twice, each container had what its pod asked for, and no pod went wrong."""
    assert churn.wrong == []
    assert [each for each in every if each.refusal] == []
    assert overlaps(every) == []
    for each in every:
        assert len(each.chips) == churn.counts[each.name]
        assert each.chips <= (OF_POOL if each.name.startswith("claim") else OF_RESOURCE)
