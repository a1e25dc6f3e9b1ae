"""The names of sockets, and the removal of those of killed instances."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import foreign
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.grpc.sockets import UNIX_PATH_LIMIT, Listener, listen_unix
from trio_npu_dra.kit.kubelet.endpoints import (
    Endpoints,
    control_sockets,
    device_plugin_socket,
    remove_replaced_sockets,
    running_instances,
)

DRIVER = "npu.example.com"
OURS = "00000000-0000-0000-0000-000000000001"
OTHER = "00000000-0000-0000-0000-000000000002"
LONG_DRIVER = "d" * 30
LONG_REGISTRY = "r" * 40
"""With both, registration sockets are named by digests only."""
LONGEST = "k" * 24
"""A folder below `folder` in which all sockets of a driver with a long name have the shortest."""


class Instance:
    """An instance with its three sockets."""

    def __init__(
        self, folder: Path, uid: str | None, driver: str = DRIVER, registry: str = "registry"
    ) -> None:
        plugins = folder.joinpath(*Path(registry).parts[:-1])
        (plugins / driver).mkdir(parents=True, exist_ok=True)
        (folder / registry).mkdir(exist_ok=True)
        self.endpoints = Endpoints(
            driver_name=driver,
            plugin_directory=plugins / driver,
            registrar_directory=folder / registry,
            pod_uid=uid,
        )
        self.service = self.endpoints.service
        self.registration = self.endpoints.registration
        self.control = self.endpoints.control
        self.listeners: list[Listener] = []

    def listen(self) -> Instance:
        """Start."""
        paths = (self.service, self.registration, self.control)
        self.listeners = [listen_unix(path) for path in paths]
        return self

    def die(self) -> Instance:
        """End as by SIGKILL: the sockets close, and the files stay."""
        while self.listeners:
            self.listeners.pop().socket.close()
        return self

    @property
    def files(self) -> list[bool]:
        """Which of service, registration and control socket are there."""
        return [path.exists() for path in (self.service, self.registration, self.control)]


GONE = [False, False, False]
THERE = [True, True, True]


def look(ours: Instance) -> None:
    """Let our instance remove others' sockets, as once the kubelet has registered it."""
    remove_replaced_sockets(ours.endpoints)


# --- names ---------------------------------------------------------------------------------------


UID = "ad4af911-5bcd-47c5-a554-f35cea869472"
HASHED = "Jk8-oymVURI"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")


def named(
    driver: str = "npu.huawei.com", uid: str | None = UID, registry: Path = REGISTRY
) -> Endpoints:
    """The endpoints of an instance that does not run."""
    return Endpoints(
        driver_name=driver,
        plugin_directory=Path("/p") / driver,
        registrar_directory=registry,
        pod_uid=uid,
    )


@pytest.mark.parametrize(("uid", "part"), [(None, ""), (UID, f"-{UID}")])
def test_sockets_have_the_names_the_kubelet_expects(uid: str | None, part: str) -> None:
    """The kubelet's conventions decide the folders; the pod's UID tells instances apart."""
    endpoints = named(uid=uid)
    assert endpoints.service == Path(f"/p/npu.huawei.com/dra{part}.sock")
    assert endpoints.registration == REGISTRY / f"npu.huawei.com{part}-reg.sock"
    assert endpoints.control == Path(f"/p/npu.huawei.com/control{part}.sock")


FULL_UID = rf"{{driver}}-{UID}-reg\.sock"
HASHED_UID = r"{driver}-[-\w]{{11}}-reg\.sock"
SHORTEST = r"[-\w]{{10}}"


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
    path = named(driver, registry=registry).registration
    assert re.fullmatch(form.format(driver=re.escape(driver)), str(path.relative_to(registry)))
    assert len(str(path)) <= UNIX_PATH_LIMIT


@pytest.mark.parametrize("driver", ["npu.huawei.com", "d" * 40, "d" * 63])
def test_registration_sockets_of_two_instances_differ(driver: str) -> None:
    """In every form: between pods, between drivers; and the same input gives the same name."""
    name = named(driver).registration
    assert name == named(driver).registration
    assert name != named(driver, OTHER).registration
    assert name != named("e" + driver[1:]).registration


def test_digests_are_those_of_the_go_helper() -> None:
    """URL-safe base64 without padding, of 8 bytes of SHA-256."""
    assert named("d" * 40).registration.name == f"{'d' * 40}-{HASHED}-reg.sock"


@pytest.mark.parametrize("uid", [None, UID, "u" * 63])
@pytest.mark.parametrize("driver", ["npu.huawei.com", "d" * 63])
@pytest.mark.parametrize("letters", [len("/var/snap/microk8s/common/var/lib/kubelet"), 79])
def test_sockets_fit_wherever_those_of_the_kubelet_do(
    uid: str | None, driver: str, letters: int
) -> None:
    """Below the folder of MicroK8s, and the longest with a `device-plugins/kubelet.sock` of 107."""
    kubelet = Path("/" + "k" * (letters - 1))
    endpoints = named(driver, uid, kubelet / "plugins_registry")
    endpoints = replace(endpoints, plugin_directory=kubelet / "plugins" / driver)
    resource = device_plugin_socket(kubelet / "device-plugins", driver, f"{'v' * 99}/{'d' * 63}")
    paths = {endpoints.service, endpoints.control, endpoints.registration, resource}
    assert len(paths) == 4
    assert all(len(str(path)) <= UNIX_PATH_LIMIT for path in paths)


def test_control_sockets_are_found_oldest_first(folder: Path) -> None:
    """One without a UID too; other names, other files and links to sockets are none."""
    (folder / DRIVER).mkdir()
    paths = [Instance(folder, uid).control for uid in ("b-c", None, "a")]
    others = [folder / DRIVER / name for name in ("controller.sock", "control-.sock", "dra.sock")]
    for age, path in enumerate((*paths, *others)):
        listen_unix(path).socket.close()
        os.utime(path, (age, age))
    (folder / DRIVER / "control-file.sock").touch()
    (folder / DRIVER / "control-a.lock").touch()
    (folder / DRIVER / "control-link.sock").symlink_to(paths[0])
    assert control_sockets(folder / DRIVER) == paths


def test_running_instances_listen_for_people(folder: Path) -> None:
    """A killed one does not, nor does another driver that has the same folder."""
    ours = Instance(folder, OURS).listen()
    Instance(folder, OTHER).listen().die()
    another = listen_unix(Instance(folder, None).service)

    assert running_instances(folder / DRIVER) == (OURS,)

    ours.die()
    another.socket.close()


def test_a_folder_that_cannot_be_read_is_named(folder: Path) -> None:
    """Here a file has its name; a folder that is missing, as before a first start, has none."""
    assert control_sockets(folder / "none") == []
    (folder / "file").touch()
    with pytest.raises(StorageError, match=f"cannot read {folder}/file: Not a directory"):
        control_sockets(folder / "file")


# --- those of the dead ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uid", "names"),
    [
        pytest.param(OTHER, (DRIVER, "registry"), id="with a UID"),
        pytest.param(None, (DRIVER, "registry"), id="without one"),
        pytest.param(OTHER, (LONG_DRIVER, LONG_REGISTRY), id="named by digests"),
        pytest.param(OTHER, ("d" * 60, f"{LONGEST}/registry"), id="with the shortest names"),
        pytest.param(None, ("d" * 60, f"{LONGEST}/registry"), id="with the shortest names, alone"),
    ],
)
@pytest.mark.parametrize("listening", [True, False])
async def test_sockets_of_a_killed_instance_go(
    folder: Path, uid: str | None, names: tuple[str, str], *, listening: bool
) -> None:
    """All of them, found by the service socket; ours stay, listening or not."""
    ours = Instance(folder, OURS, *names).listen()
    if not listening:
        ours.die()
    dead = Instance(folder, uid, *names).listen().die()

    look(ours)

    assert dead.files == GONE
    assert ours.files == THERE
    ours.die()


async def test_a_living_instance_can_be_found_no_longer(folder: Path) -> None:
    """It answers the calls that it has; an instance that waits beside it has no other socket."""
    living = Instance(folder, OTHER).listen()

    look(Instance(folder, OURS))

    assert living.files == [True, False, True]
    living.die()


def another_drivers(folder: Path) -> Instance:
    """Sockets of another driver, dead."""
    return Instance(folder, OTHER, "gpu.example.com").listen().die()


def registration_alone(folder: Path) -> Instance:
    """A registration socket of ours, dead, with no other socket that tells whose it is."""
    dead = Instance(folder, OTHER).listen().die()
    dead.service.unlink()
    dead.control.unlink()
    return dead


@pytest.mark.parametrize("leave", [another_drivers, registration_alone])
async def test_a_socket_that_may_not_be_ours_stays(
    folder: Path, leave: Callable[[Path], Instance]
) -> None:
    """Even if no process listens on it."""
    left = leave(folder)
    before = left.files

    look(Instance(folder, OURS))

    assert left.files == before


async def test_a_control_socket_goes_alone(folder: Path) -> None:
    """An instance that was killed at its start has no other socket."""
    dead = Instance(folder, OTHER)
    listen_unix(dead.control).socket.close()

    look(Instance(folder, OURS))

    assert dead.files == GONE


async def test_a_socket_whose_path_is_too_long_was_never_there(folder: Path) -> None:
    """A dead instance's name is too long where the registrar's folder has a long one."""
    ours = Instance(folder, None, registry="r" * (107 - len(f"{folder}//{DRIVER}-reg.sock")))
    dead = Instance(folder, OTHER, registry="registry").listen().die()

    look(ours)

    assert dead.files == [False, True, False]


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_another_kind_of_file_is_not_swept(folder: Path, kind: str) -> None:
    """Connecting to it is refused as well."""
    ours = Instance(folder, OURS)
    dead = Instance(folder, OTHER).listen().die()
    dead.registration.unlink()
    foreign.put(kind, dead.registration)

    look(ours)

    assert not dead.service.exists()
    assert foreign.is_there(dead.registration)
