"""`just bench`: how fast the driver is (`dev.benchmarks.claims`).

`just bench health` is another benchmark: how long it takes until the API server knows a fault.
`just bench scale N` is a third: what many nodes cost one API server. `just bench page FILE...`
writes what runs have saved into docs/performance.md.
"""

from __future__ import annotations

import sys

from dev.benchmarks import claims, health, page, scale

OTHERS = {"health": health.main, "scale": scale.main, "page": page.main}


def main(arguments: list[str]) -> None:
    """Run the benchmark that the first word names, or the usual one."""
    if arguments and arguments[0] in OTHERS:
        OTHERS[arguments[0]](arguments[1:])
    else:
        claims.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
