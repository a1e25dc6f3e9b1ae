"""A stand-in for kubectl: its proxy is the API server itself, whose socket gets one more name.

`tests/kubectl` holds it to what `tests/cluster/test_kubectl.py` shows of the real one.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

HERE: Final = "here"
"""The current context."""
_SCRIPT: Final = """\
#!/bin/sh
folder=${0%/*} context=here
for word; do
    case $word in
        --context=*) context=${word#*=} ;;
        --unix-socket=*) socket=${word#*=} ;;
    esac
done
case $1 in
    proxy)
        if [ ! -e "$folder/contexts/$context" ]; then
            echo "error: context \\"$context\\" does not exist" >&2
            exit 1
        fi
        ln -s "$folder/api.sock" "$socket"
        echo "Starting to serve on $socket"
        exec sleep infinity
        ;;
    config) cat "$folder/contexts/$context" ;;
esac
"""


@contextmanager
def stand_in(folder: Path, socket: Path, contexts: Mapping[str, str] = {}) -> Iterator[None]:
    """While inside, `kubectl` asks the API server behind *socket*.

    Args:
        folder: For its files.
        socket: May be made later.
        contexts: Namespaces of contexts besides `here`, which has none.
    """
    place = folder / "kubectl"
    (place / "contexts").mkdir(parents=True)
    for context, namespace in {HERE: "", **contexts}.items():
        (place / "contexts" / context).write_text(namespace)
    (place / "api.sock").symlink_to(socket)
    script = place / "kubectl"
    script.write_text(_SCRIPT)
    script.chmod(0o755)
    with patch.dict(os.environ, PATH=f"{place}{os.pathsep}{os.environ['PATH']}"):
        yield
