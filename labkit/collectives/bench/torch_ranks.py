"""One rank of torch.distributed: gloo between processes on loopback, nccl between GPUs.

$ RANK=0 python -m labkit.collectives.bench.torch_ranks plan.json
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from labkit.collectives.askers import end_with
from labkit.collectives.bench.rounds import Contender, Group, time_all
from labkit.collectives.bench.speaking import say, telling
from labkit.collectives.operations import Array


def main(path: str) -> None:
    """Measure what the plan says; rank 0 reports."""
    # By name: it is an extra that most readers of this file do not have.
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    end_with(plan["asker"])
    (name,) = plan["contenders"]
    rank, ranks = int(os.environ["RANK"]), plan["ranks"]
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if name == "nccl" else torch.device("cpu")
    if name == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(
        name,
        init_method=f"file://{plan['store']}",  # no port, so nobody else can come in
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )

    def largest(value: float) -> float:
        held = torch.tensor([value], dtype=torch.float64, device=device)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return float(held.item())

    def contenders(count: int) -> dict[str, Contender]:
        return {name: _contender(torch, dist, plan, rank, count, device)}

    found = time_all(
        plan, contenders, Group(rank, ranks, dist.barrier, largest), telling(silent=rank != 0)
    )
    if rank == 0:
        say("result", {"timings": found, "library": f"torch {torch.__version__}, {name}"})
    dist.destroy_process_group()


def _contender(
    torch: Any, dist: Any, plan: dict[str, Any], rank: int, count: int, device: Any
) -> Contender:
    dtype = getattr(torch, plan["dtype"])
    tensor = torch.zeros(count, dtype=dtype, device=device)

    def fill(values: Callable[[int], Array]) -> None:
        tensor.copy_(torch.from_numpy(np.ascontiguousarray(values(rank))))

    def call() -> None:
        if plan["collective"] == "all_reduce":
            dist.all_reduce(tensor)
        elif plan["collective"] == "broadcast":
            dist.broadcast(tensor, src=0)
        else:
            dist.reduce(tensor, dst=0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return Contender(fill, call, lambda: [(rank, tensor.cpu().numpy())])


if __name__ == "__main__":
    main(sys.argv[1])
