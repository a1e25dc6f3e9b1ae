"""How long to wait before the next try, when tries keep failing."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure in a row, up to a limit.

    Attributes:
        first: Seconds after the first failure.
        limit: Seconds at most.
    """

    first: float
    limit: float

    def pause(self, failures: int) -> float:
        """Seconds to wait after one or more failures in a row."""
        # The exponent is bounded because a float is.
        return min(self.limit, self.first * 2.0 ** min(failures - 1, 64))


def spread() -> float:
    """A random factor from a half to one, so that many nodes do not try again together."""
    return random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
