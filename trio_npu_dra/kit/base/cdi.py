"""CDI files: what the container runtime adds to a container that uses a claim.

Each claim has one file. Device names carry the claim's UID, so no name is ever used again for
something else, and a runtime's cache cannot be wrong.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic_core import to_json

from trio_npu_dra.kit.base import storage

Edits: TypeAlias = Mapping[str, Sequence[Any]]
"""What is added to a container: lists of env, deviceNodes, mounts and hooks, none of them empty."""

_CDI_VERSION: Final = "0.5.0"  # the lowest with hostPath and with names that start with a digit
_MODE: Final = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFiles:
    """The CDI files of one driver.

    Attributes:
        root: The node's folder, in which other drivers write too; made when missing.
        driver_name: The vendor of the CDI kind, and the start of our files' names.
        device_class: The class of the CDI kind: what the devices are, such as `gpu`.
    """

    root: Path
    driver_name: str
    device_class: str

    @property
    def kind(self) -> str:
        """The `kind` of a spec."""
        return f"{self.driver_name}/{self.device_class}"

    def device_name(self, uid: str, device: str, share_id: str | None = None) -> str:
        """The name in a spec of a claim's device, or of one share of it.

        A share has its own, because the kubelet reports health by name.
        """
        return f"{uid}-{device}" if share_id is None else f"{uid}-{device}-{share_id}"

    def device_id(self, uid: str, device: str, share_id: str | None = None) -> str:
        """The qualified CDI name that the kubelet hands to the runtime."""
        return f"{self.kind}={self.device_name(uid, device, share_id)}"

    def spec(self, devices: Mapping[str, Edits], common: Edits | None = None) -> dict[str, Any]:
        """A spec of devices by their CDI names; a container with any of them gets *common* too."""
        return {
            "cdiVersion": _CDI_VERSION,
            "kind": self.kind,
            "containerEdits": dict(common or {}),
            "devices": [{"name": name, "containerEdits": edits} for name, edits in devices.items()],
        }

    def path(self, uid: str) -> Path:
        """The file of a claim."""
        return self.root / f"{self._prefix}{uid}.json"

    def write(self, uid: str, spec: Mapping[str, Any]) -> bool:
        """Write a claim's file; see `write_spec`."""
        return write_spec(self.path(uid), spec)

    def remove(self, uid: str) -> None:
        """Remove a claim's file if it exists.

        Raises:
            StorageError: The disk refuses.
        """
        storage.remove(self.path(uid))

    def scan(self) -> dict[str, bool]:
        """The claims with a file, by UID; true for a regular file with the right owner and mode.

        Raises:
            StorageError: The folder cannot be read.
        """
        prefix, suffix = self._prefix, ".json"
        found: dict[str, bool] = {}
        with storage.translated(f"read {self.root}"):
            for path in storage.paths_in(self.root):
                if path.name.startswith(prefix) and path.name.endswith(suffix):
                    uid = path.name.removeprefix(prefix).removesuffix(suffix)
                    with suppress(FileNotFoundError):  # the daemon has just removed it
                        found[uid] = storage.has_form(path.lstat(), mode=_MODE)
        return found

    def remove_unfinished(self) -> None:
        """Remove the temporary files of killed writers.

        Raises:
            StorageError: The folder cannot be read.
        """
        storage.remove_unfinished(self.root, self._prefix)

    @property
    def _prefix(self) -> str:
        return f"{self.driver_name}-{self.device_class}_"


def write_spec(path: Path, spec: Mapping[str, Any]) -> bool:
    """Write a file for all to read, unless it is right.

    It is not synced: after a power cut it may be empty, which a runtime logs and ignores, until the
    driver prepares or repairs its claims.

    Returns:
        Whether the file was missing or wrong.

    Raises:
        StorageError: The disk is full, read-only, or fails.
    """
    content = to_json(spec) + b"\n"
    if storage.holds(path, content, mode=_MODE):
        return False
    with storage.translated(f"make {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_atomic(path, content, mode=_MODE, sync=False)
    return True
