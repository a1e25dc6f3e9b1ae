"""Socket paths and the files behind them."""

import re
from pathlib import Path

import pytest

from trio_npu_dra.errors import ConfigError
from trio_npu_dra.rpc import (
    is_refused,
    registration_socket,
    service_socket,
    service_sockets,
)
from trio_npu_dra.rpc.sockets import UNIX_PATH_LIMIT, listen_tcp, listen_unix

DRIVER = "npu.huawei.com"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
UID = "ad4af911-5bcd-47c5-a554-f35cea869472"
HASHED, BOTH = "Jk8-oymVURI", "vwqV_e6lAnsxSbQS8e5GFg"
OTHER_UID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def test_sockets_have_the_names_the_kubelet_expects() -> None:
    """Service and registration socket stand where the kubelet's conventions put them."""
    assert service_socket(Path("/p"), DRIVER) == Path("/p/npu.huawei.com/dra.sock")
    assert registration_socket(Path("/r"), DRIVER) == Path("/r/npu.huawei.com-reg.sock")


def test_each_pod_has_a_service_socket_of_its_own() -> None:
    """Its name has the pod's UID."""
    assert service_socket(Path("/p"), DRIVER, UID) == Path(f"/p/{DRIVER}/dra-{UID}.sock")


FULL_UID = rf"{{driver}}-{UID}-reg\.sock"
HASHED_UID = r"{driver}-[-\w]{{11}}-reg\.sock"
SHORTEST = r"dra-[-\w]{{22}}-reg\.sock"


@pytest.mark.parametrize(
    ("driver", "registry", "form"),
    [
        pytest.param("example.com", REGISTRY, FULL_UID, id="prefers the full UID"),
        pytest.param("d" * 27, REGISTRY, FULL_UID, id="full UID at 107 bytes"),
        pytest.param("d" * 28, REGISTRY, HASHED_UID, id="full UID would be 108"),
        pytest.param("gpu.dra-example-driver.sigs.k8s.io", REGISTRY, HASHED_UID, id="long driver"),
        pytest.param("d" * 52, REGISTRY, HASHED_UID, id="hashed UID at 107 bytes"),
        pytest.param("d" * 53, REGISTRY, SHORTEST, id="hashed UID would be 108"),
        pytest.param("d" * 100, REGISTRY, SHORTEST, id="very long driver"),
        pytest.param(
            "example.com/driver",
            Path("/var/lib/kubelet/xxxxxxxxxxxxxxxxxxxx/plugins_registry"),
            HASHED_UID,
            id="longer folder",
        ),
    ],
)
def test_a_registration_socket_takes_the_longest_name_that_fits(
    driver: str, registry: Path, form: str
) -> None:
    """UID, digest of the UID, digest of both; always a path that can be listened on."""
    path = registration_socket(registry, driver, UID)
    assert re.fullmatch(form.format(driver=re.escape(driver)), str(path.relative_to(registry)))
    assert len(str(path)) <= UNIX_PATH_LIMIT


@pytest.mark.parametrize("driver", ["npu.huawei.com", "d" * 40, "d" * 63])
def test_registration_sockets_of_two_instances_differ(driver: str) -> None:
    """In every form: between pods, between drivers; and the same input gives the same name."""
    name = registration_socket(REGISTRY, driver, UID)
    assert name == registration_socket(REGISTRY, driver, UID)
    assert name != registration_socket(REGISTRY, driver, OTHER_UID)
    assert name != registration_socket(REGISTRY, "e" + driver[1:], UID)


def test_digests_are_those_of_the_go_helper() -> None:
    """URL-safe base64 without padding, of 8 bytes of SHA-256, or of 16 with the driver before."""
    hashed, shortest = (registration_socket(REGISTRY, "d" * size, UID).name for size in (40, 63))
    assert hashed == f"{'d' * 40}-{HASHED}-reg.sock"
    assert shortest == f"dra-{BOTH}-reg.sock"


def test_service_sockets_of_all_instances_are_found_by_pod(tmp_path: Path) -> None:
    """One without a UID too; other files are none."""
    (tmp_path / DRIVER).mkdir()
    expected = {uid: service_socket(tmp_path, DRIVER, uid) for uid in (None, "a", "b-c")}
    for path in (*expected.values(), tmp_path / DRIVER / "drake.sock"):
        listen_unix(path).socket.close()
    (tmp_path / DRIVER / "dra-file.sock").touch()
    assert service_sockets(tmp_path, DRIVER) == expected


def test_only_a_socket_that_nobody_listens_on_is_refused(tmp_path: Path) -> None:
    """One that somebody listens on, another file and no file are not."""
    path = tmp_path / "dra.sock"
    listener = listen_unix(path)
    assert not is_refused(path)
    listener.socket.close()
    assert is_refused(path)
    assert not is_refused(tmp_path / "none")


def test_the_longest_path_is_accepted_and_one_more_refused(tmp_path: Path) -> None:
    """107 bytes are a socket; 108 are an error that says both numbers."""
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


def test_another_kind_of_file_is_never_removed(tmp_path: Path) -> None:
    """What is no socket stays where it is."""
    path = tmp_path / "dra.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="something else"):
        listen_unix(path)
    assert path.read_text() == "precious"


def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    """The socket's file is closed to other users."""
    listener = listen_unix(tmp_path / "dra.sock")
    listener.socket.close()
    assert (tmp_path / "dra.sock").stat().st_mode & 0o777 == 0o600


def test_a_taken_port_is_a_configuration_error() -> None:
    """Two listeners on one TCP port: the second says which port is taken."""
    first = listen_tcp(0, host="127.0.0.1")
    port = first.socket.getsockname()[1]
    with pytest.raises(ConfigError, match=str(port)):
        listen_tcp(port, host="127.0.0.1")
    first.socket.close()
