"""Tokens and certificates, which the kubelet or an operator may replace at any time."""

from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated

Mark = tuple[int, int, int] | None
"""Inode, size and mtime of a file; `None` for a missing one."""


@dataclass(frozen=True, slots=True)
class Material:
    """Bytes in *data*, or in the file *path*; messages name the *field* that gave them."""

    field: str
    path: Path | None = None
    data: bytes = b""

    def read(self) -> bytes:
        """The bytes as they are now.

        Raises:
            ConfigError: The file cannot be read.
        """
        if self.path is None:
            return self.data
        with translated(f"read {self.path}", lambda text: ConfigError(f"{self.field}: {text}")):
            return self.path.read_bytes()

    def mark(self) -> Mark:
        """Changes whenever the file is replaced or written; constant for given bytes."""
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:  # missing during a replacement; `read` has the error
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
