"""`labkit slurm run FILE.py:NAME`: what srun starts on every rank of a batch job.

It finds out from Slurm which rank it is, tells TensorFlow and the others by their environment
variables, and calls the program: NAME(rank).
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.cluster import tf_config
from labkit.cluster.rank import ThisRank
from labkit.cluster.remote import number_of_this_rank, share_gpus
from labkit.kinds import LabError

__all__ = ["environment_of_this_rank", "program_in", "run_target"]


def run_target(target: str) -> int:
    """Run FILE.py:NAME on this rank; what it returns is printed."""
    os.environ.update(environment_of_this_rank())
    share_gpus()
    rank = int(os.environ["RANK"])
    value = program_in(target)(rank)
    if value is not None:
        print(f"returned {value!r}", flush=True)
    return 0


def environment_of_this_rank() -> dict[str, str]:
    """TF_CONFIG, RANK, WORLD_SIZE, MASTER_ADDR and their like, from what Slurm has set."""
    rank = number_of_this_rank(os.environ)
    config = tf_config.from_slurm()
    hosts = [address.rpartition(":")[0] for address in config.addresses]
    together = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    host, _, port = config.addresses[0].rpartition(":")
    me = ThisRank(rank, config.ranks, config.role, config.index, config.addresses, "slurm")
    return {
        **config.environment(),
        **me.as_variable(),
        "RANK": str(rank),
        "WORLD_SIZE": str(config.ranks),
        "LOCAL_RANK": str(together.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(together)),
        "MASTER_ADDR": host,
        # After those of TensorFlow's own ranks, of which there may be several on a node.
        "MASTER_PORT": str(int(port) + config.ranks),
    }


def program_in(target: str) -> Callable[..., Any]:
    """The function of a FILE.py:NAME."""
    file, _, name = target.rpartition(":")
    path = Path(file)
    if not file or not name.isidentifier():
        raise LabError(f"{target!r} names no program. Write FILE.py:NAME, as in train.py:train.")
    if not path.is_file():
        raise LabError(f"There is no file {file} on {os.uname().nodename}.")
    # What lies beside the program can be imported, as when the file itself is run.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise LabError(f"{file} is no Python file: give the .py file of a program.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    program = getattr(module, name, None)
    if not callable(program):
        raise LabError(f"There is no program {name!r} in {file}.")
    if inspect.iscoroutinefunction(program):
        raise LabError(f"{name} is an async function. Call it from an ordinary one.")
    return program  # type: ignore[no-any-return]
