"""A node on disk for the tests of claims: device nodes, state folder, CDI folder, claims."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import trio

from trio_npu_dra.agent.claims.metadata import DeviceMetadata
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.planner import ClaimPlanner
from trio_npu_dra.agent.claims.service import CallAnswered, NodeClaims
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.ascend.offers import NO_PARTITIONS, PartitionMode
from trio_npu_dra.kit.api.claims import ClaimReader
from trio_npu_dra.kit.api.objects import (
    Allocation,
    AllocationConfiguration,
    AllocationResult,
    Consumer,
    DeviceAllocation,
    ObjectMeta,
    OpaqueConfiguration,
    ResourceClaim,
    ResourceClaimStatus,
)
from trio_npu_dra.kit.base.device_metadata import metadata_files
from trio_npu_dra.kit.base.errors import DriverError, KubeError, NotFound, Unavailable
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.driver import ClaimRef

DRIVER = "npu.huawei.com"
POOL = "node-1"
IMPATIENT = Patience(held=0.0)


class _AtOnce(Patience):
    """Tries once."""

    def limit_for(self, error: DriverError) -> float:
        """No time for another try."""
        del error
        return 0.0


AT_ONCE = _AtOnce()


def npu(physical_id: int) -> Chip:
    """A 910B4."""
    return Chip(
        ref=ChipRef(physical_id, 0),
        physical_id=physical_id,
        logic_id=physical_id,
        card_id=physical_id,
        device_id=0,
        family=ChipFamily.ASCEND_910B,
        chip_name="910B4",
    )


def board(count: int = 8) -> Board:
    """A server with *count* NPUs."""
    return Board(chips=tuple(npu(number) for number in range(count)))


def result(
    device: str,
    request: str = "npu",
    *,
    driver: str = DRIVER,
    pool: str = POOL,
    admin_access: bool | None = None,
    share_id: str | None = None,
) -> AllocationResult:
    """One device for one request."""
    return AllocationResult(
        request=request,
        driver=driver,
        pool=pool,
        device=device,
        admin_access=admin_access,
        share_id=share_id,
    )


def config(
    source: str, parameters: object, *requests: str, driver: str = DRIVER
) -> AllocationConfiguration:
    """An opaque config of an allocation, `FromClass` or `FromClaim`."""
    opaque = OpaqueConfiguration(driver=driver, parameters=parameters)
    return AllocationConfiguration(source=source, requests=requests, opaque=opaque)


def claim(
    name: str,
    *results: AllocationResult,
    uid: str | None = None,
    config: Sequence[AllocationConfiguration] = (),
    users: Sequence[Consumer] = (Consumer(resource="pods", name="pod", uid="pod"),),
) -> ResourceClaim:
    """An allocated claim in namespace `default` with UID `uid-<name>`, for a pod."""
    devices = DeviceAllocation(results=results, config=tuple(config))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}"),
        status=ResourceClaimStatus(
            allocation=Allocation(devices=devices), reserved_for=tuple(users)
        ),
    )


def ref(name: str, uid: str | None = None) -> ClaimRef:
    """The kubelet's word for `claim(name)`."""
    return ClaimRef(namespace="default", uid=uid or f"uid-{name}", name=name)


@dataclass
class FakeClaims:
    """A claim source in memory; `test_claim_source` holds it to what the API client does.

    Attributes:
        stored: The claims.
        not_cached: Names of claims that a cached read does not find yet.
        has_etcd: Whether reads work that are not cached.
        faults: Errors of the next reads.
        asked: How often claims were read.
        asked_cache: How often of those an old answer would do.
    """

    stored: dict[tuple[str | None, str], ResourceClaim] = field(default_factory=dict)
    not_cached: set[str] = field(default_factory=set)
    has_etcd: bool = True
    faults: deque[KubeError] = field(default_factory=deque)
    asked: int = 0
    asked_cache: int = 0

    def store(self, *claims: ResourceClaim) -> None:
        """Create or replace claims."""
        for each in claims:
            self.stored[each.metadata.namespace, each.metadata.name] = each

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim, or meet the next fault."""
        del kind
        await trio.lowlevel.checkpoint()
        self.asked += 1
        self.asked_cache += is_cached
        if self.faults:
            raise self.faults.popleft()
        if not is_cached and not self.has_etcd:
            raise Unavailable("etcdserver: no leader (HTTP 503)", status=503)
        missing = NotFound(f"get resourceclaims {namespace}/{name}: 404", status=404)
        if is_cached and name in self.not_cached:
            raise missing
        try:
            return self.stored[namespace, name]
        except KeyError:
            raise missing from None


@dataclass
class NodeOnDisk:
    """The node; `start` gives a driver instance on it, as many as wanted."""

    root: Path
    source: FakeClaims = field(default_factory=FakeClaims)
    board: Observable[Board] = field(default_factory=lambda: Observable(board()))

    def __post_init__(self) -> None:
        self.state_folder = self.root / "state"
        if self.root.exists():
            return
        (self.root / "dev").mkdir(parents=True)
        for name in (
            "davinci_manager",
            "devmm_svm",
            "hisi_hdc",
            "dvpp_cmdlist",
            *(f"davinci{n}" for n in range(8)),
        ):
            (self.root / "dev" / name).symlink_to("/dev/null")
        (self.root / "host/usr/local/Ascend/driver/lib64").mkdir(parents=True)
        self.reboot()

    def reboot(self) -> None:
        """Reboot the node: another boot id, and no process is left."""
        self.boot_id_file.write_text(f"{uuid4()}\n")

    @property
    def host(self) -> Host:
        """The node as the driver sees it."""
        return Host(host_root=self.root / "host", dev_root=self.root / "dev")

    @property
    def records_folder(self) -> Path:
        """Where claim records are."""
        return self.state_folder / "claims"

    @property
    def boot_id_file(self) -> Path:
        """Where the kernel says which boot it is."""
        return self.root / "boot_id"

    @property
    def cdi_root(self) -> Path:
        """Where CDI files are."""
        return self.root / "cdi"

    def cdi(self) -> CdiFolder:
        """The CDI files as a driver instance sees them."""
        return CdiFolder(
            root=self.cdi_root,
            driver_name=DRIVER,
            host=self.host,
            libraries=Libraries(path="/lib"),
            metadata=metadata_files(self.state_folder, DRIVER),
        )

    def ledger(self) -> Ledger:
        """The ledger of a driver instance."""
        return Ledger(self.state_folder, boot_id_file=self.boot_id_file)

    def start(
        self,
        *,
        reader: ClaimReader | None = None,
        ledger: Ledger | None = None,
        cdi: CdiFolder | None = None,
        steps: Sequence[Step] = (),
        patience: Patience = IMPATIENT,
        partitioning: Observable[PartitionMode] | None = None,
        metadata: DeviceMetadata | None = None,
        on_call: Callable[[CallAnswered], object] = lambda _: None,
        on_held: Callable[[str], object] = lambda _: None,
    ) -> NodeClaims:
        """A driver instance."""
        planner = ClaimPlanner(
            reader=reader or self.source,
            board=self.board,
            host=self.host,
            ledger=ledger or self.ledger(),
            cdi=cdi or self.cdi(),
            driver_name=DRIVER,
            pool_name=POOL,
            partitioning=partitioning or Observable(NO_PARTITIONS),
            metadata=metadata,
        )
        return NodeClaims(planner, steps, patience=patience, on_call=on_call, on_held=on_held)

    def cdi_path(self, uid: str) -> Path:
        """The CDI file of a claim."""
        return self.cdi_root / f"{DRIVER}-npu_{uid}.json"

    def record_uids(self) -> set[str]:
        """UIDs of all records on disk."""
        return {path.stem for path in self.records_folder.glob("*.json")}

    def cdi_uids(self) -> set[str]:
        """UIDs of all CDI files on disk."""
        prefix = f"{DRIVER}-npu_"
        return {path.stem.removeprefix(prefix) for path in self.cdi_root.glob("*.json")}

    def record(self, uid: str) -> Any:
        """A record's JSON."""
        return json.loads((self.records_folder / f"{uid}.json").read_bytes())

    def unfinished_files(self) -> list[Path]:
        """Temporary files of killed writers."""
        return [*self.records_folder.glob(".*"), *self.cdi_root.glob(".*")]
