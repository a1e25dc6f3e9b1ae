"""TLS contexts that follow their files: rotated CAs and client certificates need no restart."""

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated

log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client's identity in TLS; certificate (chain) and private key in PEM."""

    certificate: Material
    key: Material


class Tls:
    """Trusts one CA bundle alone, and shows a client certificate if there is one.

    Args:
        authority: The CA certificates in PEM.
        client: The certificate to show.

    Raises:
        ConfigError: A file cannot be read or used; the message has the field.
    """

    def __init__(self, authority: Material, client: ClientCertificate | None = None) -> None:
        self._authority = authority
        self._client = client
        self._files = [authority]
        if client is not None:
            self._files += [client.certificate, client.key]
        self._marks = self._stat_files()
        self._problem = ""
        self._context = self._load()

    def current(self) -> ssl.SSLContext:
        """The context for a new connection: another one once a file was replaced.

        If files cannot be used, a log line says so and the old context stays until they can: a
        certificate and its key may be replaced one after the other.

        Raises:
            OSError: OpenSSL cannot get the files, because too many are open.
        """
        marks = self._stat_files()
        if marks != self._marks:
            try:
                self._context = self._load()
            except ConfigError as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.warning("replaced certificates are not used", extra={"error": str(error)})
            else:
                self._marks, self._problem = marks, ""
                log.info("replaced certificates are used", extra={"field": self._files[0].field})
        return self._context

    def _stat_files(self) -> tuple[Mark, ...]:
        return tuple(file.mark() for file in self._files)

    def _load(self) -> ssl.SSLContext:
        # Built by hand: the default context loads the system's CAs (40 ms), and since Python 3.13
        # refuses CA certificates without an authority key identifier, which clusters do have.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        # A file, because Python takes only ASCII text, without comments in other scripts.
        with _as_file(self._authority.read()) as path:
            try:
                context.load_verify_locations(cafile=path)
            except ssl.SSLError as error:
                raise ConfigError(
                    f"{self._authority.field} is not a PEM certificate: {error}"
                ) from error
        if (client := self._client) is not None:
            with _as_file(client.certificate.read() + b"\n" + client.key.read()) as path:
                try:
                    # The empty password keeps OpenSSL from asking a terminal for the key's.
                    context.load_cert_chain(path, password="")
                except (ssl.SSLError, ValueError) as error:
                    raise ConfigError(
                        f"{client.certificate.field} and {client.key.field} do not fit: {error}"
                    ) from error
        return context


def check_name(name: str) -> None:
    """Refuse what is no host name or address; Python cannot ask a server for that.

    Raises:
        ValueError: It is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    except ssl.SSLError as error:
        raise ValueError(str(error)) from error


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """A file in memory with *pem*, for OpenSSL, which reads some things from files only."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(pem)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
