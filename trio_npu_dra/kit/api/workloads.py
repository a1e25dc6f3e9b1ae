"""Controllers of pods that work together: which pods are theirs, and how many run at once."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, Items, KubeObject, Named

JOB_NAME: Final = "batch.kubernetes.io/job-name"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
"""Labels of pods with the name of their Job, JobSet or LeaderWorkerSet."""
JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
JOBSET_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
STATEFULSET_INDEX: Final = "apps.kubernetes.io/pod-index"
"""Labels of pods with numbers that their controllers give them; the size is an annotation."""


class LabelRequirement(ApiModel):
    """matchExpressions[] of a selector of labels."""

    key: str
    operator: str
    values: Items[str] = ()

    def __str__(self) -> str:
        """As in the query of a list."""
        operator = self.operator.lower()
        if operator in {"in", "notin"}:
            return f"{self.key} {operator} ({','.join(self.values)})"
        return self.key if operator == "exists" else f"!{self.key}"


class LabelSelector(ApiModel):
    """spec.selector of a controller."""

    match_labels: Named[str] = Field(default_factory=dict)
    match_expressions: Items[LabelRequirement] = ()

    def __str__(self) -> str:
        """As in the query of a list."""
        labels = (f"{key}={value}" for key, value in self.match_labels.items())
        return ",".join((*labels, *map(str, self.match_expressions)))


class JobSpec(ApiModel):
    """spec of a Job."""

    parallelism: int = 1
    completions: int | None = None
    selector: LabelSelector = Field(default_factory=LabelSelector)

    @property
    def pods_at_once(self) -> int:
        """How many of its pods run side by side."""
        return min(self.parallelism, self.completions or self.parallelism)


class Job(KubeObject):
    """A Job."""

    group_version = "batch/v1"
    kind_name = "Job"
    plural = "jobs"
    namespaced = True

    spec: JobSpec = Field(default_factory=JobSpec)


class StatefulSetSpec(ApiModel):
    """spec of a StatefulSet."""

    replicas: int = 1
    selector: LabelSelector = Field(default_factory=LabelSelector)


class StatefulSet(KubeObject):
    """A StatefulSet."""

    group_version = "apps/v1"
    kind_name = "StatefulSet"
    plural = "statefulsets"
    namespaced = True

    spec: StatefulSetSpec = Field(default_factory=StatefulSetSpec)


class JobTemplate(ApiModel):
    """template of a replicated Job."""

    spec: JobSpec = Field(default_factory=JobSpec)


class ReplicatedJob(ApiModel):
    """spec.replicatedJobs[] of a JobSet."""

    replicas: int = 1
    template: JobTemplate = Field(default_factory=JobTemplate)


class JobSetSpec(ApiModel):
    """spec of a JobSet."""

    replicated_jobs: Items[ReplicatedJob] = ()


class JobSet(KubeObject):
    """A JobSet (sigs.k8s.io/jobset)."""

    group_version = "jobset.x-k8s.io/v1alpha2"
    kind_name = "JobSet"
    plural = "jobsets"
    namespaced = True

    spec: JobSetSpec = Field(default_factory=JobSetSpec)
