"""In a notebook of the course, a NameError says which section makes the name."""

import json
import os
import symtable
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any


def install() -> None:
    """Let this kernel's NameErrors say so. labkit calls it where IPython is loaded already."""
    shell = sys.modules["IPython"].get_ipython()
    if getattr(shell, "kernel", None) is not None and os.environ.get("JPY_SESSION_NAME"):
        shell.set_custom_exc((NameError,), _show)


def made_in(cells: list[dict[str, Any]], name: str) -> str | None:
    """The section of the first code cell that binds a name; "" before the first section."""
    heading = ""
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            titles = [line for line in source.splitlines() if line.startswith("## ")]
            heading = titles[-1].strip("# ") if titles else heading
        elif cell["cell_type"] == "code" and name in _bound(source):
            return heading
    return None


def _bound(source: str) -> set[str]:
    with suppress(SyntaxError):  # a cell with a magic, or an unfinished one
        symbols = symtable.symtable(source, "cell", "exec").get_symbols()
        return {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    return set()


def _show(
    shell: Any, kind: type, value: NameError, trace: TracebackType, tb_offset: int | None = None
) -> None:
    file = Path(os.environ["JPY_SESSION_NAME"]).name  # a kernel runs in its notebook's folder
    with suppress(OSError, ValueError):  # moved, or being written
        cells = json.loads(Path(file).read_text(encoding="utf-8"))["cells"]
        where = made_in(cells, str(value.name))
        if kind is NameError and where is not None:
            value.add_note(
                f"`{value.name}` is made in {f'section {where}' if where else 'the first cells'}. "
                "Right-click its heading in the contents on the left: Select and Run Cell(s) for "
                "this Heading. Or run all before this cell: Run > Run All Above Selected Cell."
            )
    shell.showtraceback((kind, value, trace), tb_offset=tb_offset)
