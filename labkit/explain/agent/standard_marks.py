"""Marks in NumPy, TensorBoard and Horovod."""

from __future__ import annotations

from labkit_agent import marks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def logging(module: Any) -> None:
    marks.wrap(module.Logger, "callHandlers", "log", marks.nothing)


def pickle(module: Any) -> None:
    marks.wrap(module, "dump", "save", marks.nothing, users_own=True)


def numpy(np: Any) -> None:
    for name in ("save", "savez", "savez_compressed", "savetxt"):
        marks.wrap(np, name, "save", marks.nothing, users_own=True)


def tensorboard(module: Any) -> None:
    writer = module.SummaryWriter
    for name in dir(writer):
        if name.startswith("add_") or name == "flush":
            marks.wrap(writer, name, "log", marks.nothing)


def horovod(hvd: Any) -> None:
    for name in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "synchronize"):
        marks.wrap(hvd, name, "comm")
