"""A job in the cluster: which pods it has, and its members once all of them are there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import trio

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import KubeObject, ResourceClaim
from trio_npu_dra.kit.api.paths import Where
from trio_npu_dra.kit.api.pods import PlacedPod
from trio_npu_dra.kit.api.watch import list_and_watch
from trio_npu_dra.kit.api.workloads import (
    JOBSET_NAME,
    LWS_GROUP_INDEX,
    LWS_NAME,
    LWS_SIZE,
    Job,
    JobSet,
    StatefulSet,
)
from trio_npu_dra.kit.base.command_line import must_be_one_of
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.tools.ranktable.members import Gathered, gather, live, names_of

_PAGES: Final[Mapping[type[KubeObject], int]] = {PlacedPod: 50, ResourceClaim: 200}
"""Objects in one answer, by their usual size."""
_OPERATORS: Final = frozenset("=!,(")
"""Of selectors of labels."""
_SIZE: Final = re.compile(r"[0-9]{1,9}")
"""The size of a group; other digits, or more of them, are no work of its controller."""
_PAUSE: Final = 0.3
"""Seconds after a change, in which further ones come."""


class Controller(StrEnum):
    """What makes the pods of a job."""

    JOB = "job"
    JOBSET = "jobset"
    LWS = "lws"
    STATEFULSET = "statefulset"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPods:
    """The pods of a job.

    Attributes:
        namespace: Theirs.
        labels: The selector of their labels.
        count: How many it has; None: as many as are there.
        is_lws: Whether the selector is of all groups of a LeaderWorkerSet, of which each is a job.
    """

    namespace: str
    labels: str
    count: int | None
    is_lws: bool = False

    @property
    def is_of_any_size(self) -> bool:
        """Whether nothing tells how many pods it has."""
        return self.count is None and not self.is_lws


async def find_job(client: KubeClient, text: str, namespace: str, count: int | None) -> JobPods:
    """The job that a *text* means: `<controller>/<name>`, or a selector of labels.

    Raises:
        ConfigError: The text means nothing.
        KubeError: The controller cannot be read.
    """
    kind, slash, name = text.partition("/")
    if not slash or "." in kind or set(text) & _OPERATORS:  # keys of labels have a domain
        return JobPods(namespace=namespace, labels=text, count=count)
    if kind not in set(Controller):
        raise ConfigError(f"{text}: what is before the / {must_be_one_of(Controller, kind)}")
    if count is not None:
        raise ConfigError(f"--pods: {text} says itself how many pods it has")
    match Controller(kind):
        case Controller.JOB:
            job = await client.get(Job, name, namespace)
            labels, count = str(job.spec.selector), job.spec.pods_at_once
        case Controller.STATEFULSET:
            stateful = await client.get(StatefulSet, name, namespace)
            labels, count = str(stateful.spec.selector), stateful.spec.replicas
        case Controller.JOBSET:
            parts = (await client.get(JobSet, name, namespace)).spec.replicated_jobs
            labels = f"{JOBSET_NAME}={name}"
            count = sum(part.replicas * part.template.spec.pods_at_once for part in parts)
        case Controller.LWS:  # whose pods say how many they are
            labels = f"{LWS_NAME}={name}"
            return JobPods(namespace=namespace, labels=labels, count=None, is_lws=True)
    return JobPods(namespace=namespace, labels=labels, count=count)


async def read_members(
    client: KubeClient, job: JobPods, own: str, *, wait: float | None
) -> Gathered:
    """The members of a job, and what is still lacking.

    Args:
        client: The API server.
        job: The job.
        own: The name of the pod in which this program runs, if it is one of the job.
        wait: Seconds to wait at most until nothing is lacking; None: the job as it is.

    Raises:
        KubeError: Pods or claims cannot be read.
        DriverError: The job has what HCCL cannot use.
    """
    scopes: dict[type[KubeObject], Where] = {
        PlacedPod: {"namespace": job.namespace, "label_selector": job.labels},
        ResourceClaim: {"namespace": job.namespace},
    }
    listed = {
        kind: await client.list_all(kind, page=_PAGES[kind], **where)
        for kind, where in scopes.items()
    }
    newest: dict[type[KubeObject], Iterable[Any]] = {
        kind: found.objects for kind, found in listed.items()
    }
    gathered = _gathered(job, own, newest)
    if not gathered.lacks or wait is None:
        return gathered
    changes = Observable(0)

    async def follow(kind: type[KubeObject], where: Where) -> None:
        known = listed[kind].objects, listed[kind].version
        views = list_and_watch(client, kind, listed=known, page=_PAGES[kind], **where)
        async with aclosing(views):
            async for view in views:
                if view.synced:
                    newest[kind] = view.objects.values()
                    changes.set(changes.value + 1)

    with trio.move_on_after(wait):
        async with trio.open_nursery() as nursery:
            for kind, where in scopes.items():
                nursery.start_soon(follow, kind, where)
            async for _ in changes.changes():
                await trio.sleep(_PAUSE)
                gathered = _gathered(job, own, newest)
                if not gathered.lacks:
                    break
            nursery.cancel_scope.cancel()
    return gathered


def _gathered(
    job: JobPods, own: str, objects: Mapping[type[KubeObject], Iterable[Any]]
) -> Gathered:
    pods, count = live(objects[PlacedPod]), job.count
    if job.is_lws:
        pods = _own_group(job, own, pods)
        sizes = {pod.metadata.annotations.get(LWS_SIZE, "") for pod in pods}
        counts = (int(size) for size in sizes if _SIZE.fullmatch(size))
        count = max(counts, default=1) if pods else None
    if not pods and count is None:
        lack = f"no pod in namespace {job.namespace} with the labels {job.labels} runs or waits"
        hint = "" if set(job.labels) & {*_OPERATORS, "/"} else f"; did you mean job/{job.labels}?"
        return Gathered(members=(), lacks=(lack + hint,))
    return gather(pods, {claim.metadata.name: claim for claim in objects[ResourceClaim]}, count)


def _own_group(job: JobPods, own: str, pods: tuple[PlacedPod, ...]) -> tuple[PlacedPod, ...]:
    def group(pod: PlacedPod) -> str:
        return pod.metadata.labels.get(LWS_GROUP_INDEX, "")

    groups = set(map(group, pods))
    if len(groups) > 1:
        groups = {group(pod) for pod in pods if own in names_of(pod)}
    if len(groups) > 1 or (pods and not groups):
        one = f"{job.labels},{LWS_GROUP_INDEX}=0"
        raise ConfigError(f"{job.labels} has several groups: name one by {one}")
    return tuple(pod for pod in pods if group(pod) in groups)
