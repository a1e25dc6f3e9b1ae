"""The docs site: `python -m dev.site [build|serve|check]`.

`build` writes build/site and fails on a dead link or anchor; `serve` shows the site at
http://localhost:8000 and follows changes. Both need no network.

`check` builds the site and opens each page in Chromium: it fails on what axe-core finds serious or
critical, on pages that do not fit a telephone, on pictures that cannot be read, and on what comes
from another host. It writes screenshots into build/screenshots. It needs chromium, node and npm (on
Debian the packages of these names), and npm's registry to install what
dev/site/browser/package-lock.json has.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from dev.site import built
from dev.site.stage import ROOT, dead_links, sources, stage

SITE: Final = ROOT / "build/site"
BROWSER: Final = ROOT / "dev/site/browser"
SCREENSHOTS: Final = ROOT / "build/screenshots"
_LOOK_SECONDS: Final = 1.0


def build() -> int:
    """Build the site; the exit code is 1 if it has a problem, and each has a line."""
    found = [line for page in sources() for line in dead_links(page)]
    if not found:
        stage()
        done = subprocess.run(_command("build", "--clean", "--strict"), cwd=ROOT, check=False)
        found = ["the site was not built"] if done.returncode else built.problems(SITE)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def serve() -> int:
    """Show the site until it is interrupted."""
    stage()
    with subprocess.Popen(_command("serve"), cwd=ROOT) as server:
        try:
            while server.poll() is None:
                time.sleep(_LOOK_SECONDS)
                stage()
        except KeyboardInterrupt:
            return 0
        finally:
            server.terminate()
        return server.returncode


def check() -> int:
    """Build the site and look at it in a browser; the exit code is 1 if there is a problem."""
    missing = [name for name in ("chromium", "node", "npm") if shutil.which(name) is None]
    if missing:
        print(f"install {', '.join(missing)}: the site is looked at in Chromium", file=sys.stderr)
        return 1
    if build():
        return 1
    install = ["npm", "ci", "--no-fund", "--no-audit", "--loglevel=error"]
    subprocess.run(install, cwd=BROWSER, check=True)
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    nav = re.findall(r'"([^"]+)\.md"', str(tomllib.loads(text)["project"]["nav"]).replace("'", '"'))
    with _served() as url:
        words = [url, shutil.which("chromium") or "", str(SCREENSHOTS)]
        words += [f"{page}.html" for page in nav]
        return subprocess.run(["node", "look.mjs", *words], cwd=BROWSER, check=False).returncode


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Say nothing."""


@contextmanager
def _served() -> Iterator[str]:
    """The built site on a free port of this machine; gives its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "zensical", *words]


_COMMANDS: Final = {"build": build, "serve": serve, "check": check}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="just docs", description=__doc__.partition("\n")[0])
    parser.add_argument("command", nargs="?", choices=_COMMANDS, default="build")
    return _COMMANDS[parser.parse_args().command]()


if __name__ == "__main__":
    sys.exit(main())
