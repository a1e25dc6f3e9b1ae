"""How chips get into containers, for claims and for pods of a device plugin alike.

Who may have a device, the CDI files, the hook for the driver's libraries, and the share flag of
chips. The package knows entries of the ledger, and neither claims nor resources.
"""

from __future__ import annotations

__all__ = ["cdi", "exclusion", "library_hook", "share_flag"]
