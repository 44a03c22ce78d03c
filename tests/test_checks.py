"""What `make check` asks for; as tests these run beside the others."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command", ["mypy --no-error-summary", "ruff check --quiet .", "ruff format --quiet --check ."]
)
def test_lint_format_and_types(command):
    tool, *options = command.split()
    done = subprocess.run(
        [Path(sys.executable).with_name(tool), *options], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
