"""What a claim may configure; knows neither claims nor devices.

`model` has the rules, `refusals` the messages about wrong configs, `effective` combines several.
Other rooms import from these modules; few nodes need pydantic's schema of a config at a start.
"""

from __future__ import annotations

__all__ = ["effective", "model", "refusals"]
