"""What pyproject.toml cannot say: a build knows its revision (trio_npu_dra/revision.py)."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRevision(build_py):
    """Writes the revision beside the modules; not for an editable install, whose files change."""

    def run(self) -> None:
        """Build, and write it."""
        super().run()
        program = Path(__file__).parent / "requirements/revision.py"
        if program.exists() and not self.editable_mode:  # a source archive does not have it
            command = [sys.executable, str(program)]
            revision = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            Path(self.build_lib, "trio_npu_dra/revision").write_text(revision, encoding="utf-8")


setup(cmdclass={"build_py": BuildWithRevision})
