"""The kernel labkit · PyTorch: the environment's Python where it is built, else the course's own.

Its kernelspec (`kernelspec/kernel.json`) is always installed beside labkit: a notebook that names a
missing kernel runs no cell, so that none could say how to build it. Without the environment the
first cell says so, and an unchanged cell that fails shows what was saved with it.
"""

import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from labkit import environments
from labkit.kinds import KERNEL, LabError, wrapped

SPEC = {"display_name": "labkit · PyTorch", "language": "python", "name": "labkit-torch"}
MISSING = "LABKIT_KERNEL_MISSING"  # why this kernel runs on the course's Python
COURSE = "LABKIT_COURSE_PYTHON"  # for programs of a lecture that need TensorFlow
RECORDED = "Not run here. Recorded when this notebook was saved:\n"
WARM = (
    "torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp",
    "torch.distributed.pipelining", "torch.distributed.tensor.parallel",
)  # fmt: skip
WARM_SECONDS = 3600.0  # the first task of a lecture may come late


def missing(name: str) -> str:
    """Why the kernel cannot run on this environment, and what to do; "" if it can.

    What was built from an older lock may lack ipykernel, or show no widgets.
    """
    try:
        chosen = environments.find(name)
    except LabError as fault:
        return str(fault)
    return "" if chosen.state == "built" else chosen.how_to_build()


def python_version(name: str) -> str:
    """The version of the Python that the kernel of this environment would be."""
    stamp = None if missing(name) else environments.find(name).stamp
    return stamp.python if stamp else platform.python_version()


def main(name: str, *words: str) -> None:
    """Become the kernel; `words` are those of ipykernel's command line."""
    python = os.environ[COURSE] = sys.executable
    if why := missing(name):
        os.environ[MISSING] = why
    else:
        chosen = environments.find(name)
        python = str(chosen.python)
        os.environ |= chosen.variables_of(0, ["127.0.0.1:0"], "127.0.0.1:0") | {KERNEL: name}
    more = "--IPKernelApp.extra_extensions=labkit.kernel"
    os.execv(python, [python, "-m", "ipykernel_launcher", more, *words])


def load_ipython_extension(shell: Any) -> None:
    """Prepare the first cell. IPython calls it when the kernel starts."""
    if why := os.environ.get(MISSING):
        _once(shell, "pre_run_cell", lambda: print(wrapped(why)))
        _show_saved(shell)
    else:
        _once(shell, "post_run_cell", warm)


def warm() -> None:
    """Have the fork server import torch while other cells run, so that no task waits for it."""
    from labkit.cluster.here.local import LocalEngine

    with suppress(LabError, OSError):  # the first cluster will say what is wrong
        LocalEngine(keep_warm=True).warm(WARM, WARM_SECONDS)


def _once(shell: Any, event: str, act: Callable[[], None]) -> None:
    def happened(_: object) -> None:
        shell.events.unregister(event, happened)
        act()

    shell.events.register(event, happened)


def _show_saved(shell: Any) -> None:
    """Let an unchanged cell that fails show its saved outputs, and let the next ones run."""
    kinds, otherwise = shell.custom_exceptions, shell.CustomTB
    now: list[Any] = []
    shown: list[Exception] = []

    def failed(
        _: Any, kind: type, value: Exception, trace: TracebackType, tb_offset: int | None = None
    ) -> None:
        if (outputs := _saved(now[-1])) is not None:
            shown.append(value)
            print(RECORDED, end="")
            for output in outputs:
                if "data" in output:
                    shell.display_pub.publish(output.data, output.metadata)
                elif "text" in output:
                    print(output.text.removeprefix(RECORDED), end="")
        elif isinstance(value, kinds):
            otherwise(kind, value, trace, tb_offset)
        else:
            shell.showtraceback((kind, value, trace), tb_offset=tb_offset)

    def ended(result: Any) -> None:
        if result.error_in_exec in shown:
            result.error_in_exec = None  # else Jupyter would not run the cells that wait

    shell.set_custom_exc((Exception,), failed)
    shell.events.register("pre_run_cell", now.append)
    shell.events.register("post_run_cell", ended)


def _saved(cell: Any) -> list[Any] | None:
    """The outputs that the notebook's file has of this cell; None of one that has been changed."""
    import nbformat

    with suppress(KeyError, OSError, ValueError):
        # A kernel runs in its notebook's folder.
        notebook = nbformat.read(Path(os.environ["JPY_SESSION_NAME"]).name, as_version=4)
        for one in notebook.cells:
            if one.id == cell.cell_id and one.source.strip() == cell.raw_cell.strip():
                return list(one.outputs)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
