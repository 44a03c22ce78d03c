"""Put the marks into a framework once it has been imported: an import hook, no edit."""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys

from labkit_agent import marks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOOKS = {
    "logging": ("standard_marks", "logging"),
    "pickle": ("standard_marks", "pickle"),
    "numpy": ("standard_marks", "numpy"),
    "torch": ("torch_marks", "torch"),
    "torch.utils.tensorboard": ("standard_marks", "tensorboard"),
    "horovod.torch": ("standard_marks", "horovod"),
    "horovod.tensorflow": ("standard_marks", "horovod"),
    "tensorflow": ("tensorflow_marks", "tensorflow"),
    "keras": ("tensorflow_marks", "keras"),
}


class Finder:
    """Calls the hook of a module after that module has run."""

    def __init__(self) -> None:
        self.busy: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in HOOKS or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy.discard(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            # TensorFlow asks for the spec of keras without running it: used up only here.
            hook(name, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def hook(name: str, module: Any) -> None:
    if found := HOOKS.pop(name, None):
        try:
            part = importlib.import_module(f"labkit_agent.{found[0]}")
            getattr(part, found[1])(module)
        except Exception as fault:
            marks.me.notes["not watched: " + name] = repr(fault)
            if os.environ.get("LABKIT_EXPLAIN_DEBUG"):
                raise


sys.meta_path.insert(0, Finder())
for known in [*HOOKS]:
    if known in sys.modules:
        hook(known, sys.modules[known])
marks.wrap(builtins, "print", "log", marks.nothing, users_own=True)
marks.wrap(os, "fsync", "log", marks.nothing, users_own=True)
