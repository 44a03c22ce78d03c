"""README's programs run, each by itself."""

from __future__ import annotations

import re
from pathlib import Path

from tests import forked

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_each_program_of_the_readme_runs_by_itself(tmp_path):
    """On fewer images: that it runs is the promise, not how well it learns."""
    assert len(PROGRAMS) >= 4
    for number, program in enumerate(PROGRAMS):
        script = tmp_path / f"program{number}.py"
        script.write_text(program.replace("batch=64", "batch=64, images=1_280"))
        ended = forked.run(script)
        assert ended.code == 0, ended.err
