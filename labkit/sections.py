"""In a notebook errors say what is near: a section that makes a name. `%%explain` is there, too."""

import json
import os
import symtable
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from labkit.arguments import near


def install() -> None:
    """Let this kernel's errors say so. labkit calls it where IPython is loaded already."""
    shell = sys.modules["IPython"].get_ipython()
    if shell is not None:
        shell.register_magic_function(_explain, "cell", "explain")
    if getattr(shell, "kernel", None) is not None and os.environ.get("JPY_SESSION_NAME"):
        shell.set_custom_exc((NameError, AttributeError), _show)


def _explain(line: str, cell: str) -> Any:
    """Run this cell as a program, and measure what makes it slow; %%explain 60 takes a minute."""
    from labkit.explain.magic import explain_cell

    return explain_cell(line, cell)


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
    shell: Any, kind: type, value: Any, trace: TracebackType, tb_offset: int | None = None
) -> None:
    if kind is AttributeError:
        owner = value.obj
        home = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__module__
        if home.startswith("labkit") and "Did you mean" not in str(value):
            known = [name for name in dir(owner) if not name.startswith("_")]
            if hint := near(value.name, known).strip():
                value.add_note(hint)
    elif kind is NameError:
        _say_section(value)
    shell.showtraceback((kind, value, trace), tb_offset=tb_offset)


def _say_section(value: NameError) -> None:
    file = Path(os.environ["JPY_SESSION_NAME"]).name  # a kernel runs in its notebook's folder
    with suppress(OSError, ValueError):  # moved, or being written
        cells = json.loads(Path(file).read_text(encoding="utf-8"))["cells"]
        where = made_in(cells, str(value.name))
        if where is not None:
            value.add_note(
                f"`{value.name}` is made in {f'section {where}' if where else 'the first cells'}. "
                "Right-click its heading in the contents on the left: Select and Run Cell(s) for "
                "this Heading. Or run all before this cell: Run > Run All Above Selected Cell."
            )
