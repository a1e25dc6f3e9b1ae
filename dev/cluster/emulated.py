"""Runs a program where those of arm64 run too: `emulated.py PROGRAM [ARGUMENT...]`.

Linux gives what it cannot run itself to the programs that binfmt_misc names. A user namespace has a
binfmt_misc of its own, which ends with it: the machine's stays as it is, and needs nothing. Every
user and group keeps its number in the namespace, because packages give files to several. Process
ids are its own too: all that the program started ends with it.

It needs only Python itself, Linux 6.7, root, and Debian's qemu-user-static.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

QEMU = "qemu-aarch64-static"
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
"""How the file of a program for arm64 begins: ELF of 64 bits, little endian, an executable (2) or a
position independent one (3), machine 183. elf.h has the numbers."""
WAIT = """
echo begun >&{0}
read -r mapped <&{0}
exec setpriv --pdeathsig KILL -- unshare --pid --fork --kill-child sh -euc "$@"
"""
"""The namespace's first program waits for the ids; the next one then has root's capabilities."""
BEGIN = """
mount -t proc proc /proc
if ! mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; then
    echo "to run programs of arm64: binfmt_misc in a user namespace needs Linux 6.7" >&2
    exit 1
fi
printf %s "$0" >/proc/sys/fs/binfmt_misc/register
exec "$@"
"""
ALL_IDS = "0 0 65536\n"


def main(*argv: str) -> int:
    """Run it to its end.

    Returns:
        Its exit status.

    Raises:
        SystemExit: qemu is not installed.
    """
    qemu = shutil.which(QEMU)
    if qemu is None:
        sys.exit(f"{QEMU} is not installed: apt-get install qemu-user-static")
    # F: Linux opens qemu now, so that other roots need not have it.
    handler = f":arm64:M::{MAGIC}:{MASK}:{qemu}:F"
    ours, its = socket.socketpair()
    process = subprocess.Popen(
        [
            *("unshare", "--user", "--mount", "--propagation", "private"),
            *("sh", "-euc", WAIT.format(its.fileno()), "sh", BEGIN, handler, *argv),
        ],
        pass_fds=[its.fileno()],
    )
    its.close()
    if ours.recv(64):
        for kind in ("uid", "gid"):
            Path(f"/proc/{process.pid}/{kind}_map").write_text(ALL_IDS)
        ours.sendall(b"\n")
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
