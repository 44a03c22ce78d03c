"""How many operations a step has, against what a matrix product reaches in the same process."""

from __future__ import annotations

from typing import Any

from labkit_agent import marks
from labkit_agent.marks import me

SIDE, TIMES = 1024, 24
counting: list[Any] = []


def count(torch: Any) -> None:
    """Called at each step of PyTorch: count the operations of one, then time a product."""
    n = len(me.marks.get("optimizer", ()))
    if n == marks.WARM and not counting:
        from torch.utils.flop_counter import FlopCounterMode

        counting.append(FlopCounterMode(display=False))
        counting[0].__enter__()
    elif n == marks.WARM + 1:
        counting[0].__exit__(None, None, None)
        with torch.no_grad():
            a = torch.ones(SIDE, SIDE)
            me.notes["product"] = _rate(lambda: torch.mm(a, a))
        me.notes["operations"] = counting[0].get_total_flops()


def count_graph(tf: Any, function: Any, args: Any, options: Any) -> None:
    """The same of the graph of a compiled step."""
    if counting or len(me.marks.get("tf", ())) != marks.WARM:
        return
    counting.append(True)
    profiler = tf.compat.v1.profiler
    asked = profiler.ProfileOptionBuilder.float_operation()
    asked["output"] = "none"
    graph = function.get_concrete_function(*args, **options).graph
    me.notes["operations"] = profiler.profile(graph, options=asked).total_float_ops
    a = tf.ones((SIDE, SIDE))
    me.notes["product"] = _rate(lambda: tf.matmul(a, a).numpy())


def _rate(product: Any) -> float:
    """Operations in a second of the best of some products."""
    best = 1e9
    for _ in range(TIMES):
        begin = marks.now()
        product()
        best = min(best, marks.now() - begin)
    return float(2 * SIDE**3 / best)
