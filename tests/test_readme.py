"""README's programs run, each by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_readme_runs_by_itself(program, tmp_path):
    """On fewer images: that it runs is the promise, not how well it learns."""
    program = program.replace("batch=64", "batch=64, images=1_280")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_programs():
    assert len(PROGRAMS) >= 4
