"""What a claim may configure; knows neither claims nor devices.

`model` has the rules, `refusals` the messages about wrong configs, `effective` combines several.
"""

from __future__ import annotations

__all__ = ["effective", "model", "refusals"]
