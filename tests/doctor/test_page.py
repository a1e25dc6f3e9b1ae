"""The documentation shows what the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.site.doctor_outputs import PAGE, SCENES, make
from dev.site.markdown import with_output


@pytest.mark.parametrize("scene", SCENES)
def test_committed_output_is_what_the_command_prints(folder: Path, scene: str) -> None:
    """`just pictures` makes it anew."""
    output = make(scene, folder)

    page = PAGE.read_text(encoding="utf-8")
    assert output in page
    assert with_output(page, f"doctor: {scene}", output) == page
