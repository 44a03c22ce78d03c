"""What answers of lecture 60 are judged by: Horovod."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges import framework_ranks, frameworks
from labkit.exercises.task import Wrong
from labkit.kinds import LabError
from labkit.shipping import functions_of, names_in

if TYPE_CHECKING:
    from labkit.collectives import Trace

MOST_BYTES = 1000  # for a checksum; the weights of the judge are 8,000 bytes
CHANGES = "the last bit of one value", "the order of two values", "one sign"
PLACES = (0, 503, 999)  # of the 1,000 weights


def checksum(answer: Any) -> Trace:
    """Every rank must know whether all weights are equal, without sending the weights."""
    if any("hash" in names_in(each.__code__) for each in functions_of(answer)):
        raise Wrong("hash() of equal bytes is different in each process, so take zlib.crc32.")
    for ranks in (2, 3, 1, 4):
        for change, place in itertools.product(CHANGES * (ranks > 1), PLACES):
            _compare(answer, ranks, change, place)
        trace = _compare(answer, ranks)
    return trace


def _compare(answer: Callable[..., Any], ranks: int, change: str = "", place: int = 0) -> Trace:
    import numpy as np

    from labkit import collectives

    # Multiples of 2**-20: their sum has no rounding, and is the same in any order.
    weights = np.random.default_rng(23).integers(-(2**21), 2**21, 1000) / 2**20
    inputs, verdicts = [weights.copy() for _ in range(ranks)], dict[int, Any]()
    changed = 0 if "sign" in change else ranks - 1
    if "last bit" in change:
        inputs[changed][place] = np.nextafter(inputs[changed][place], 9)
    elif "order" in change:
        inputs[changed][[place, 700]] = weights[[700, place]]
    elif change:
        inputs[changed][place] *= -1

    def program(comm: Any, buffer: Any) -> None:
        verdicts[comm.Get_rank()] = answer(comm, buffer)

    case = f"On {ranks} rank{'s' * (ranks > 1)}, "
    case += (
        f"on rank {changed} {change} (number {place}) differs" if change else "all weights equal"
    )
    try:
        trace = collectives.run(program, inputs, timeout=10)
    except LabError as fault:
        raise Wrong(f"{case}: {fault}") from None
    for rank, verdict in sorted(verdicts.items()):
        if str(verdict) != str(not change):
            raise Wrong(f"{case}: rank {rank} returned {verdict}, not {not change}.", trace)
    if (most := max(trace.bytes_sent)) > MOST_BYTES:
        text = f"a rank sent {most:,} bytes. The weights have 8,000, so send less."
        raise Wrong(f"{case}: it is correct, but {text}", trace)
    return trace


def step(answer: Any) -> None:
    """Three steps on two ranks must be those of one process with all images."""
    import numpy as np

    random = np.random.default_rng(23)
    images = random.normal(size=(3, frameworks.BATCH, 5)).astype("float32")
    labels = random.integers(0, 3, size=(3, frameworks.BATCH))
    start = random.normal(size=(5, 3)).astype("float32")
    data = images.tolist(), labels.tolist(), start.tolist()
    found = frameworks.run(
        "horovod", framework_ranks.horovod_steps, answer, *data, ranks=frameworks.RANKS
    )

    def serial(scale: float = 1.0, loss: str = "", same: bool = False, **_: Any) -> dict[str, Any]:
        weights, share = start.astype("float64"), slice(None, None, 2 if same else 1)
        for x, y in zip(images[:, share], labels[:, share], strict=True):
            weights -= scale * 0.5 * x.T @ frameworks.error(x @ weights, y, loss)
        return {"weights": weights}

    if not np.allclose(found[0], found[1], atol=1e-6):
        raise Wrong(
            "After three steps the two ranks hold different weights. Each must apply the mean of "
            "both ranks' gradients. DistributedGradientTape must wrap the tape before gradient."
        )
    if not np.allclose(found[0], serial()["weights"], atol=1e-5):
        why = frameworks.mistake({"weights": np.array(found[0])}, serial)
        raise Wrong(
            f"The two ranks hold equal weights, but not those of one process with all images.{why}"
        )


def start(answer: Any) -> None:
    """All of rank 0's state on every rank, the optimizer's too."""
    results = frameworks.run("horovod", framework_ranks.horovod_start, answer, ranks=2)
    names = ("kernel", "bias", "gamma", "beta", "moving mean", "moving variance")
    wanted = results[0][0]
    for rank, (_, found, iterations, state) in enumerate(results):
        for name, one, right in zip(names, found, wanted, strict=True):
            if one != right:
                raise Wrong(f"Rank {rank} does not hold the {name} that rank 0 had before.")
        if len(state) < 5:  # the count of updates, and a momentum for each of four variables
            raise Wrong(f"On rank {rank} the optimizer has no momentum yet.")
        if iterations != 100:
            raise Wrong(f"On rank {rank} the optimizer counts {iterations} updates, on rank 0 100.")
        if state != results[0][-1]:
            text = "of the optimizer are not those of rank 0: broadcast optimizer.variables"
            raise Wrong(f"On rank {rank} the momenta {text}.")
