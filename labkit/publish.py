"""`labkit notebooks`: run the notebooks on a fresh kernel and save what a reader should see.

>>> main(["01"])                            # doctest: +SKIP
10_why_distribute.ipynb: 9 code cells in 21.4 s, 310 kB

A notebook is written only when every cell has run without an error. What differs from run to run
(times of execution, ids of widgets, folders of this machine) is left out, so that a commit shows
what has really changed. The metadata is what JupyterLab would save: it marks a notebook as changed
when it opens one with another.

A busy machine measures something else than an idle one. There an output that nbval does not compare
stays as it was saved; clear it, and it is measured anew. A cell tagged `needs-verdict`, whose text
relies on a verdict, is never saved with "cannot tell".
"""

import copy
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit import kernel
from labkit.arguments import near
from labkit.hardware import machine
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import atomic_write

CELL_SECONDS = 900  # only what hangs takes as long, also on a slow and busy machine
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
KERNELS = {spec["name"]: spec for spec in (KERNEL, kernel.SPEC)}  # that a notebook may name
KEPT_CELL_METADATA = ("tags", "jupyter", "slideshow")
COURSE = "~/distributed"  # where a reader may have put the course
MEASURED = "nbval-ignore-output"
NEEDS_VERDICT = "needs-verdict"
BUSY = 0.15  # of all cores
NOTE = "The machine was busy"  # of labkit.measure and compare: busy in between
WIDGET = "application/vnd.jupyter.widget-view+json"


def main(names: Sequence[str] = (), course: Path | None = None) -> int:
    """Run and save the named notebooks, or all. `01` is enough of a name."""
    import nbformat

    course = course or Path(__file__).resolve().parent.parent
    for path in chosen(names, course / "notebooks"):
        started = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        saved = {cell.id: copy.deepcopy(cell) for cell in notebook.cells}
        load = machine.busy(1.0)
        _run(notebook, path)
        cells = _tidy(notebook, path)
        noted = any(NOTE in str(cell.get("outputs")) for cell in notebook.cells)
        if noted or max(load, machine.busy(1.0)) > BUSY:
            kept, new = _keep_measured(notebook, saved)
            print(
                f"{path.name}: this machine is busy, {kept} measured outputs stay as they were"
                + f", {new} new of a busy machine: clear and renew them" * (new > 0)
            )
        _refuse_without_verdict(notebook, path)
        atomic_write(path, nbformat.writes(notebook).rstrip("\n") + "\n")
        took, size = seconds_text(time.monotonic() - started), bytes_text(path.stat().st_size)
        print(f"{path.name}: {cells} code cells in {took}, {size}", flush=True)
    return 0


def _keep_measured(notebook: Any, saved: dict[str, Any]) -> tuple[int, int]:
    """Put back the saved outputs that depend on the machine; how many, and how many are new."""
    kept = new = 0
    for cell in notebook.cells:
        if MEASURED not in cell.metadata.get("tags", []) or not cell.outputs:
            continue
        if outputs := saved[cell.id].get("outputs"):
            cell.outputs = outputs
            for output in outputs:
                if "execution_count" in output:
                    output.execution_count = cell.execution_count
            kept += 1
        else:
            new += 1
    return kept, new


def _refuse_without_verdict(notebook: Any, path: Path) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        wanted = NEEDS_VERDICT in cell.metadata.get("tags", [])
        if wanted and "cannot tell" in str(cell.outputs):
            raise LabError(
                f"{path.name}, code cell {number}: its text needs a verdict, and it says "
                "'cannot tell'. The file has not been changed: try again on an idle machine."
            )


def chosen(names: Sequence[str], folder: Path) -> list[Path]:
    """The notebooks of these names, or all; `01` is enough of a name."""
    present = sorted(folder.glob("[0-9c]*.ipynb"))  # lectures and the capstone
    called = {name: p for p in present for name in (p.stem, p.stem.split("_")[0])}
    if unknown := [name for name in names if name not in called]:
        raise LabError(
            f"No notebook in {folder} is called {unknown[0]!r}. "
            f"There are: {', '.join(p.stem for p in present)}.{near(unknown[0], called)}"
        )
    return sorted({called[name] for name in names}) or present


def _run(notebook: Any, path: Path) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    running: list[Any] = []
    name = notebook.metadata.get("kernelspec", KERNEL)["name"]
    if name == kernel.SPEC["name"] and (why := kernel.missing("torch")):
        raise LabError(f"{path.name}: {why}")
    # The kernel of this environment, not one of the user's that has the same name.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    with tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True) as private:
        environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
        environment |= {"LABKIT_PROGRESS": "off", "LABKIT_PICTURES": "still", "IPYTHONDIR": private}
        client = NotebookClient(
            notebook,
            kernel_name=name,
            timeout=CELL_SECONDS,
            raise_on_iopub_timeout=True,
            store_widget_state=False,
            on_cell_execute=lambda cell, cell_index: running.append(cell),
            resources={"metadata": {"path": str(path.parent)}},
        )
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as fault:
            failed = isinstance(fault, CellExecutionError)
            what = f"{fault.ename}: {fault.evalue}" if failed else str(fault)
            raise LabError(
                f"{path.name}, code cell {len(running)}: {what}. "
                "The file has not been changed: correct the cell and try again."
            ) from fault


def _tidy(notebook: Any, path: Path) -> int:
    """Leave out what changes from run to run; the number of code cells."""
    import nbformat

    # nbclient has put the kernel's own language_info there, in full.
    meant = KERNELS[notebook.metadata.get("kernelspec", KERNEL)["name"]]
    language = notebook.metadata.language_info
    notebook.metadata = nbformat.from_dict({"kernelspec": meant, "language_info": language})
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in KEPT_CELL_METADATA if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
    for number, cell in enumerate(code, start=1):
        cell.outputs = _joined_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                raise LabError(
                    f"{path.name}, code cell {number} wrote to stderr: "
                    f"{output.text.strip()[:300]!r}. "
                    "A reader would see it in red: remove its cause and try again."
                )
            # Without its state, which Jupyter does not save, a widget hides its own static picture.
            if len(output.get("data", {})) > 1:
                output.data.pop(WIDGET, None)
            _without_folders(output, path.resolve().parent.parent)
    return len(code)


def _without_folders(output: Any, course: Path) -> None:
    """Show the folders of this machine as the README does."""
    places = {str(course): COURSE, str(Path.home()): "~"}
    if sys.prefix != sys.base_prefix:
        places[sys.prefix] = f"{COURSE}/.venv"

    def shown(text: str) -> str:
        for folder in sorted(places, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.~-]){re.escape(folder)}(?![\w.-])", places[folder], text)
        return text

    if "text" in output:
        output.text = shown(output.text)
    for kind, content in output.get("data", {}).items():
        if kind.startswith("text/"):
            output.data[kind] = shown(content)


def _joined_streams(outputs: list[Any]) -> list[Any]:
    """One output for each run of prints, without the progress lines that have been overwritten."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if output.output_type == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = re.sub(r"[^\n]*\r(?!\n)(\x1b\[K)?", "", output.text)
    return [one for one in joined if one.output_type != "stream" or one.text.strip()]
