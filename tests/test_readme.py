"""The programs of README and of the page of the library run, each by itself."""

from __future__ import annotations

import re
from pathlib import Path

from tests import forked

ROOT = Path(__file__).parent.parent
TEXT = "".join(
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/library.md")
)
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_each_program_runs_by_itself(tmp_path):
    """On fewer images: that it runs is the promise, not how well it learns."""
    assert len(PROGRAMS) >= 4
    for number, program in enumerate(PROGRAMS):
        script = tmp_path / f"program{number}.py"
        script.write_text(program.replace("batch=64", "batch=64, images=1_280"))
        ended = forked.run(script)
        assert ended.code == 0, ended.err
