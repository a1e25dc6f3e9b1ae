"""Listening sockets and the files behind them."""

import resource
from pathlib import Path

import pytest

from tests import foreign
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.grpc import is_refused
from trio_npu_dra.kit.grpc.sockets import UNIX_PATH_LIMIT, is_socket, listen_tcp, listen_unix


def test_only_a_socket_that_nobody_listens_on_is_refused(tmp_path: Path) -> None:
    """A socket with a listener, another file and a missing file do not count."""
    path = tmp_path / "dra.sock"
    listener = listen_unix(path)
    assert not is_refused(path)
    listener.socket.close()
    assert is_refused(path)
    assert not is_refused(tmp_path / "none")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert not is_refused(path)  # without a descriptor nobody can tell
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_longest_path_is_accepted_and_one_more_refused(tmp_path: Path) -> None:
    """107 bytes make a socket; 108 are an error with both numbers."""
    room = UNIX_PATH_LIMIT - len(str(tmp_path)) - 1
    listener = listen_unix(tmp_path / ("s" * room))
    listener.withdraw()
    listener.socket.close()
    with pytest.raises(ConfigError, match=r"108 bytes.*107"):
        listen_unix(tmp_path / ("s" * (room + 1)))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """Without its directory a socket is a configuration error that names the directory."""
    with pytest.raises(ConfigError, match=f"{tmp_path}/none does not exist"):
        listen_unix(tmp_path / "none" / "dra.sock")


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_a_file_in_a_sockets_place_is_replaced(tmp_path: Path, kind: str) -> None:
    """It ends no start, and nothing is removed behind a link."""
    path = tmp_path / "dra.sock"
    if kind == "file":
        path.write_text("precious")
    else:
        foreign.put(kind, path)

    listener = listen_unix(path)

    assert is_socket(path)
    assert not is_refused(path)
    assert kind != "link" or foreign.victim(path).exists()
    listener.withdraw()
    listener.socket.close()


def test_a_taken_port_is_a_configuration_error() -> None:
    """Of two listeners on one TCP port the second names the taken port."""
    first = listen_tcp(0, host="127.0.0.1")
    port = first.socket.getsockname()[1]
    with pytest.raises(ConfigError, match=str(port)):
        listen_tcp(port, host="127.0.0.1")
    first.socket.close()
