"""Device metadata: what programs in a container can read of their devices, a file a request.

KEP-5304 defines the path in a container and the content; the kubelet has no part in it. A file has
an object a line, one for each version that readers may know, the newest first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.cdi import Edits

_PLACE: Final = "/var/run/kubernetes.io/dra-device-attributes"
_VERSIONS: Final = ("v1beta1", "v1alpha1")  # for readers of Kubernetes 1.37 and 1.36; equal content
_HEADS: Final = tuple(
    f'{{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/{version}",'.encode()
    for version in _VERSIONS
)
_SUFFIX: Final = ".json"
_FOLDER_MODE: Final = 0o700
_MODE: Final = 0o644  # containers of any user

Documents = Mapping[str, Mapping[str, Any]]
"""The metadata of a claim by request, without subrequests: an object without its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFiles:
    """The metadata files of one driver.

    Attributes:
        folder: Has the path of the host; made when missing.
        driver_name: The start of a file's name in containers.
    """

    folder: Path
    driver_name: str

    def path(self, uid: str, request: str) -> Path:
        """The file of a claim's request."""
        return self.folder / f"{uid}_{request}{_SUFFIX}"  # neither of them has an underscore

    def edits(self, uid: str, request: str, document: Mapping[str, Any]) -> Edits:
        """The CDI edits that bring the file of a request to a container."""
        return {
            "mounts": [
                {
                    "hostPath": str(self.path(uid, request)),
                    "containerPath": self._container_path(request, document),
                    "options": ["ro", "bind", "nosuid", "nodev", "noexec"],
                }
            ]
        }

    def write(self, uid: str, documents: Documents) -> None:
        """Write a claim's files, unless they are right.

        A file that is there keeps its inode, because containers have it mounted. It is not synced:
        after a power cut it may be empty, and after a crash a part of it there, until the driver
        prepares or repairs its claims.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        if documents:
            storage.make_folder(self.folder, mode=_FOLDER_MODE)
        for request, document in documents.items():
            content = to_json(document)[1:] + b"\n"  # of each version
            data = b"".join(head + content for head in _HEADS)
            storage.write_in_place(self.path(uid, request), data, mode=_MODE)

    def remove(self, uid: str) -> None:
        """Remove a claim's files.

        Raises:
            StorageError: The disk refuses.
        """
        for request in self.scan(uid).get(uid, ()):
            storage.remove(self.path(uid, request))

    def scan(self, uid: str = "") -> dict[str, set[str]]:
        """The requests that have a file, by the claims' UIDs; those of claim *uid* alone if given.

        Raises:
            StorageError: The folder cannot be read.
        """
        found: dict[str, set[str]] = {}
        for path in storage.paths_in(self.folder):
            if path.name.startswith(uid) and path.suffix == _SUFFIX:
                owner, line, request = path.stem.partition("_")
                if line:
                    found.setdefault(owner, set()).add(request)
        return found

    def _container_path(self, request: str, document: Mapping[str, Any]) -> str:
        pod_claim = document.get("podClaimName")
        claim = (
            f"resourceclaims/{document['metadata']['name']}"
            if pod_claim is None
            else f"resourceclaimtemplates/{pod_claim}"
        )
        return f"{_PLACE}/{claim}/{request}/{self.driver_name}-metadata.json"


def metadata_files(state_folder: Path, driver_name: str) -> MetadataFiles:
    """The metadata files beside a driver's records."""
    return MetadataFiles(folder=state_folder / "device-metadata", driver_name=driver_name)


def renewed(old: Documents, new: Documents) -> Documents:
    """The new metadata; what has changed in a request's has the next generation."""
    return {request: _renewed(old.get(request), document) for request, document in new.items()}


def _renewed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Mapping[str, Any]:
    if old is None:
        return new
    generation = old["metadata"]["generation"]
    same = {**new, "metadata": {**new["metadata"], "generation": generation}}
    if same == old:
        return old
    return {**new, "metadata": {**new["metadata"], "generation": generation + 1}}
