"""The container runtimes of a node: CDI, and the Ascend runtime beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.kubelet import runtime_endpoints
from trio_npu_dra.tools.doctor.places import Places
from trio_npu_dra.tools.doctor.programs import programs
from trio_npu_dra.tools.doctor.runtime_config import (
    CONTAINERD,
    CRIO,
    RuntimeConfig,
    UnreadableConfig,
    containerd,
    crio,
    docker,
    toml,
)

_CONTAINERD_FILE: Final = "/etc/containerd/config.toml"
_CRIO_FILE: Final = "/etc/crio/crio.conf"
_CRIO_MORE: Final = "/etc/crio/crio.conf.d/*.conf"
_DOCKER_FILE: Final = "/etc/docker/daemon.json"

_SCHEMES: Final = {CONTAINERD: "containerd://", CRIO: "cri-o://"}
_OTHERS: Final = re.compile("docker|isula")
"""Words in the names of the sockets of runtimes that are not among them."""
_OURS: Final = re.compile("containerd|cri-?o")
"""Words in the paths of the sockets of those that are."""
_VERSION: Final = re.compile(r"\w+://v?(\d+)\.(\d+)")
_FIRST_WITH_CDI: Final = (1, 7)
_FIRST_WITH_CDI_ON: Final = (2, 0)


def check(places: Places, runtime: str) -> Iterator[Finding]:
    """Check the configurations of container runtimes.

    *runtime* is what the API server says, such as `containerd://2.1.6`; empty if it is not known.
    """
    cdi = places.cdi_on_host
    configs, unread = _read_all(places)
    other = _other_runtime(places, runtime)
    if other:
        yield problem(
            f"the kubelet starts pods with {other}, on which this driver does not work: such pods "
            "may run without their NPU, and without an error",
            "Use containerd 1.7 or newer, or CRI-O, on nodes with NPUs.",
        )
    elif not runtime:
        yield from _about_unknown(places)
    for why in unread:
        yield not_checked(why, "Look there for CDI and the Ascend runtime yourself.")
    used = [
        config
        for config in configs
        if config.serves_pods and not other
        if not runtime or runtime.startswith(_SCHEMES[config.engine])
    ]
    if not used and runtime.startswith(_SCHEMES[CONTAINERD]) and not unread:
        used = [RuntimeConfig(engine=CONTAINERD, file="")]
    if not used and not unread and not other:
        yield not_checked(
            f"no configuration of {runtime or 'containerd or CRI-O'} found",
            f"See that the container runtime has CDI on and looks in {cdi}.",
        )
    for config in used:
        findings = [*_about_cdi(config, runtime, cdi), *_about_ascend(config)]
        yield from findings
        if not findings:
            yield ok(_config_text(config))
    for config in configs:
        if not config.serves_pods and config.is_ascend_default:
            yield from _about_ascend(config)


# --- reading -------------------------------------------------------------------------------------


def _read_all(places: Places) -> tuple[list[RuntimeConfig], list[str]]:
    """The configurations, and why some cannot be read; running containerds name their files."""
    running = [*programs(places, "containerd")]
    files = [program.flag("--config", "-c") or _CONTAINERD_FILE for program in running]
    readers: list[tuple[str, Callable[[], RuntimeConfig | None]]] = [
        (file, partial(_containerd, places, file, is_running=bool(running)))
        for file in dict.fromkeys(files or [_CONTAINERD_FILE])
    ]
    readers += [(_CRIO_FILE, partial(_crio, places)), (_DOCKER_FILE, partial(_docker, places))]
    configs, unread = [], []
    for file, read in readers:
        try:
            if config := read():
                configs.append(config)
        except (StorageError, UnreadableConfig) as error:
            unread.append(f"{file}: {error}")
    return configs, unread


def _containerd(places: Places, file: str, *, is_running: bool) -> RuntimeConfig | None:
    content = places.read(file)
    if content is None:
        return RuntimeConfig(engine=CONTAINERD, file="") if is_running else None
    documents = [toml(content)]
    files, waiting = [file], [*_imports(places, file, documents[0])]
    while waiting:
        imported = waiting.pop(0)
        if imported not in files:
            files.append(imported)
            documents.append(toml(places.read(imported) or b""))
            waiting += _imports(places, imported, documents[-1])
    return containerd(file, documents)


def _imports(places: Places, file: str, document: Mapping[str, Any]) -> Iterator[str]:
    imports = document.get("imports")
    for pattern in imports if isinstance(imports, list) else []:
        yield from _matching(places, str(PurePosixPath(file).parent / str(pattern)))


def _crio(places: Places) -> RuntimeConfig | None:
    files = [_CRIO_FILE, *_matching(places, _CRIO_MORE)]
    contents = [content for file in files if (content := places.read(file)) is not None]
    return crio(_CRIO_FILE, map(toml, contents)) if contents else None


def _docker(places: Places) -> RuntimeConfig | None:
    content = places.read(_DOCKER_FILE)
    return None if content is None else docker(_DOCKER_FILE, content)


def _matching(places: Places, pattern: str) -> list[str]:
    """Files of the host, by name; a pattern is for the last part of the path.

    Raises:
        StorageError: The folder cannot be read.
    """
    path = PurePosixPath(pattern)
    folder = places.on_host(str(path.parent))
    with storage.translated(f"read {path.parent}"):
        found = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
    return [str(path.parent / file.name) for file in found if fnmatch(file.name, path.name)]


def _other_runtime(places: Places, runtime: str) -> str:
    """The runtime of the kubelet's pods if it is certainly neither containerd nor CRI-O."""
    if runtime:
        return "" if runtime.startswith(tuple(_SCHEMES.values())) else runtime
    return next(
        (
            endpoint
            for endpoint in runtime_endpoints(places)
            if _OTHERS.search(PurePosixPath(endpoint).name.lower())
        ),
        "",
    )


def _about_unknown(places: Places) -> Iterator[Finding]:
    for endpoint in runtime_endpoints(places):
        if not _OURS.search(endpoint):
            yield not_checked(
                f"what serves {endpoint}, with which the kubelet starts pods, is not known",
                "See that it is containerd 1.7 or newer, or CRI-O.",
            )


# --- judging -------------------------------------------------------------------------------------


def _config_text(config: RuntimeConfig) -> str:
    others = f"; the Ascend runtime is there as {', '.join(config.ascend)}, not as the default"
    where = f"({config.file})" if config.file else "without a file of its own"
    return f"{config.engine} {where} has CDI on" + (others if config.ascend else "")


def _about_cdi(config: RuntimeConfig, runtime: str, cdi: str) -> Iterator[Finding]:
    version = _version(runtime)
    file = config.file or _CONTAINERD_FILE
    section = f'[plugins."{config.section}"] of {file}'
    is_on = config.cdi if config.cdi is not None else _is_on_by_default(config, version)
    if config.engine == CONTAINERD and version is not None and version < _FIRST_WITH_CDI:
        yield problem(f"{runtime} knows no CDI devices", "Use containerd 1.7 or newer.")
        return
    if is_on is False:
        said = "enable_cdi = false" if config.cdi is False else "enable_cdi is not set"
        yield problem(
            f"CDI is off in containerd ({file}: {said}): containers get no NPU",
            f"Set enable_cdi = true in {section}, and restart containerd.",
        )
    elif is_on is None:
        yield warning(
            f"CDI is off if this is containerd 1.7: {file} does not set enable_cdi",
            f"Set enable_cdi = true in {section} unless containerd is 2.0 or newer.",
        )
    if cdi not in _same_folders(config.cdi_folders):
        where = section if config.engine == CONTAINERD else f"[crio.runtime] of {file}"
        yield problem(
            f"{config.engine} does not look for CDI specs in {cdi}, only in "
            + ", ".join(config.cdi_folders),
            f"Add it to cdi_spec_dirs in {where}, or start this driver with another --cdi-root.",
        )


def _about_ascend(config: RuntimeConfig) -> Iterator[Finding]:
    if config.is_ascend_default:
        yield warning(
            f"the Ascend runtime is the default of {config.engine} ({config.default} in "
            f"{config.file}): a container whose image or pod sets ASCEND_VISIBLE_DEVICES gets NPUs "
            "that others have",
            "Make runc the default again; pods that need the Ascend runtime can name it with a "
            "RuntimeClass."
            if config.serves_pods
            else "Make runc Docker's default again, and start no NPU containers with Docker.",
        )


def _version(runtime: str) -> tuple[int, int] | None:
    match = _VERSION.match(runtime)
    return (int(match[1]), int(match[2])) if match else None


def _is_on_by_default(config: RuntimeConfig, version: tuple[int, int] | None) -> bool | None:
    """Of containerd; None if its version is not known."""
    if config.version >= 3:  # which containerd 2.0 brought
        return True
    return None if version is None else version >= _FIRST_WITH_CDI_ON


def _same_folders(folders: Iterable[str]) -> set[str]:
    """These folders, and their other names: /var/run is a link to /run."""
    known = set(folders)
    return known | {
        other + folder.removeprefix(one)
        for folder in known
        for one, other in (("/var/run/", "/run/"), ("/run/", "/var/run/"))
        if folder.startswith(one)
    }
