"""Checks of a node: what else serves NPUs on it, and what is in the way of this driver.

Each module checks one subject, without effects; it must not know flags or forms of output. The
command imports `examination`, `finding` and `places`.
"""

__all__ = ["examination", "finding", "places"]
