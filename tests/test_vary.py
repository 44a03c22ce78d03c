"""`make vary` changes what is there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SPEC = importlib.util.spec_from_file_location(
    "vary", Path(__file__).parent.parent / ".ci" / "vary.py"
)
vary = sys.modules["vary"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(vary)


def test_what_rows_change_is_there_to_be_changed(tmp_path):
    copy = vary.copy_of_checkout(tmp_path)
    for edit in {(*vary.CHECKSUM, ""), *(edit for row in vary.ROWS for edit in row.edits)}:
        vary.change(copy, *edit)
