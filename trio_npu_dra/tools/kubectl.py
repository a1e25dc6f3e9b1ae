"""The cluster that a command for people asks, through `kubectl proxy`, which logs in like kubectl.

A pod without kubectl, such as one of our image, has its service account.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials, load_credentials, own_namespace
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.terminal import write
from trio_npu_dra.revision import USER_AGENT

LOGIN_SECONDS: Final = 120.0
"""For one request: kubectl may run a credential plugin first, which may wait for a person."""
_START_SECONDS: Final = 30.0
_FLAGS: Final = {
    "as": "USER",
    "as-group": "GROUP",
    "as-uid": "UID",
    "cache-dir": "DIR",
    "certificate-authority": "FILE",
    "client-certificate": "FILE",
    "client-key": "FILE",
    "cluster": "NAME",
    "context": "NAME",
    "kubeconfig": "FILE",
    "server": "URL",
    "tls-server-name": "NAME",
    "token": "TOKEN",
    "user": "NAME",
}
"""Those of `kubectl options` that say which cluster is meant and who asks, with their values."""
_UNVERIFIED: Final = "--insecure-skip-tls-verify"
_PROXY: Final = (
    *("kubectl", "proxy"),
    "--append-server-path",  # of a server such as https://rancher.example.com/k8s/clusters/c-1
    "--reject-methods=^(POST|PUT|PATCH|DELETE)$",
)
_GUARDED: Final = """
(trap "" HUP INT TERM; read -r _ <"$1"; [ -e "$0" ] && kill $$; rm -rf "$0") >/dev/null 2>&1 &
shift; exec "$@"
"""
"""A shell that becomes kubectl, with a child that waits until nobody has the pipe `$1` open for
writing. If the folder `$0` still exists then, we were killed: it ends kubectl and removes it."""
_LOG: Final = re.compile(r"^[IWEF]\d{4} .*", re.DOTALL | re.MULTILINE)
"""What kubectl logs, of several lines perhaps; its proxy answers the same."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of kubectl, gathered in `kubectl` as arguments for it."""
    flags = parser.add_argument_group("passed on to kubectl (see kubectl options)")
    for name, value in _FLAGS.items():
        word = f"--{name}={{}}".format
        flags.add_argument(
            f"--{name}", dest="kubectl", action="append", default=[], type=word, metavar=value
        )
    flags.add_argument(_UNVERIFIED, dest="kubectl", action="append_const", const=_UNVERIFIED)


@asynccontextmanager
async def open_cluster(
    asked: argparse.Namespace, *, deadline: float = LOGIN_SECONDS, stdin: int | None = None
) -> AsyncIterator[KubeClient]:
    """A client of the cluster that the flags of kubectl mean.

    Args:
        asked: The command line.
        deadline: Seconds for one request.
        stdin: That of kubectl, where its credential plugins may ask; ours by default.

    Raises:
        ConfigError: kubectl is missing, or refuses its flags or its files.
    """
    if shutil.which("kubectl"):
        async with (
            _proxied(asked.kubectl, stdin) as socket,
            open_client(
                Credentials(
                    source="kubectl proxy", base_url="http://localhost", unix_socket=socket
                ),
                user_agent=USER_AGENT,
                deadline=deadline,
            ) as client,
        ):
            yield client
    elif asked.kubectl or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError("there is no kubectl in $PATH, which logs in to the cluster: install it")
    else:
        async with open_client(load_credentials(None), user_agent=USER_AGENT) as client:
            yield client


async def namespace_of(asked: argparse.Namespace) -> str:
    """The namespace that is meant: of `--namespace`, of the context, or of our pod."""
    if asked.namespace:
        return str(asked.namespace)
    if shutil.which("kubectl"):
        form = "jsonpath={.contexts[0].context.namespace}"
        shown = await trio.run_process(
            ["kubectl", "config", "view", "--minify", "--output", form, *asked.kubectl],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        if shown.returncode == 0:  # else there is no context
            return shown.stdout.decode() or "default"
    return own_namespace() or "default"


@asynccontextmanager
async def _proxied(flags: list[str], stdin: int | None) -> AsyncIterator[Path]:
    """A socket behind which kubectl asks the cluster; socket and kubectl end with the block.

    They also end if this process is killed.
    """
    reading, writing = os.pipe()
    with (
        os.fdopen(reading) as pipe,
        os.fdopen(writing, "w"),
        TemporaryDirectory(prefix="kubectl-npu-") as folder,
    ):
        socket = Path(folder, "kubectl-proxy")
        words = ("sh", "-c", _GUARDED, folder, f"/dev/fd/{reading}")
        async with trio.open_nursery() as nursery:
            kubectl: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    [*words, *_PROXY, f"--unix-socket={socket}", *flags],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    check=False,
                    pass_fds=(reading,),
                )
            )
            pipe.close()
            await _serving(kubectl)
            nursery.start_soon(_show_questions, kubectl)
            yield socket
            nursery.cancel_scope.cancel()


async def _serving(kubectl: trio.Process) -> None:
    """Wait until the proxy serves.

    Raises:
        ConfigError: It ended, or asks for a password.
    """
    assert kubectl.stdout is not None
    assert kubectl.stderr is not None
    said = b""
    try:
        with trio.fail_after(_START_SECONDS):
            async for chunk in kubectl.stdout:
                said += chunk
                if b"Starting to serve" in said:
                    return
                if b"Please enter" in said:
                    raise ConfigError(
                        "kubectl asks for a user name and a password: in the kubeconfig, give the "
                        "user of the context a token, a client certificate or a credential plugin"
                    )
    except trio.TooSlowError:
        raise ConfigError(f"kubectl proxy does not serve after {_START_SECONDS:g} s") from None
    text = b"".join([chunk async for chunk in kubectl.stderr]).decode(errors="replace")
    why = " ".join((text.partition("error: ")[2] or text).split()) or "it did not say why"
    hint = "; it may be older than 1.23" if "unknown flag" in why else ""
    raise ConfigError(f"kubectl proxy ended: {why}{hint}")


async def _show_questions(kubectl: trio.Process) -> None:
    """Show what kubectl says for a person, such as the questions of a credential plugin."""
    assert kubectl.stderr is not None
    async for chunk in kubectl.stderr:
        write(_LOG.sub("", chunk.decode(errors="replace")), sys.stderr)
