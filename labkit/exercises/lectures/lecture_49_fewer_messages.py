"""Judges of lecture 49: ranks that communicate seldom, and ranks that go on without a lost one.

A run is compared with the serial program and, if it differs, with the serial program in which one
usual mistake is made: what both return is the mistake that is named.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from labkit.exercises.judges.model_parallel import Array, Case, Piece

SIZE, RATE, OUTER, KEPT = 6, 0.2, 0.7, 0.9
Gradient = Callable[[Array, int], Array]
Results = Sequence[Sequence[Array]]  # of each rank


def _start(ranks: int, size: int = SIZE) -> tuple[Array, list[Gradient]]:
    """The weights of all ranks, and each rank's gradient, of weights and the number of a step."""
    random = np.random.default_rng(49 + ranks)
    targets = random.normal(0, 2, (ranks, size))

    def gradient(target: Array, w: Array, step: int) -> Array:
        return np.asarray(np.tanh(w - target) + 0.1 * np.cos(target + step))

    return random.normal(size=size), [partial(gradient, one) for one in targets]


def _pieces(name: str, of_ranks: Sequence[Array], advice: str) -> list[list[Piece]]:
    return [[Piece(name, {"the serial program": one}, advice)] for one in of_ranks]


def _each(found: Iterable[Array]) -> Results:
    return [[one] for one in found]


def local_sgd(ranks: int, steps: int, every: int) -> Case:
    """(comm, w, gradient, lr, steps, every) → the mean weights after the last step."""
    start, gradients = _start(ranks)
    whole = steps - steps % every

    def serial(is_due: Callable[[int], bool], averaged: str = "weights") -> Results:
        ws, kept = np.tile(start, (ranks, 1)), np.zeros(SIZE)
        for step in range(steps):
            found = np.array([one(w, step) for one, w in zip(gradients, ws, strict=True)])
            kept = kept + found.mean(axis=0)
            if averaged == "all gradients":
                if is_due(step):
                    ws, kept = ws - RATE * kept, np.zeros(SIZE)
                continue
            if averaged == "last gradients" and is_due(step):
                found = np.tile(found.mean(axis=0), (ranks, 1))
            ws = ws - RATE * found
            if averaged in ("weights", "sum") and is_due(step):
                ws = np.tile(ws.sum(axis=0) / (ranks if averaged == "weights" else 1), (ranks, 1))
        return _each(ws)

    def right(step: int) -> bool:
        return (step + 1) % every == 0 or step + 1 == steps

    mistakes = {
        "The average comes after each step, which is synchronous training. Each rank makes "
        "`every` steps of its own first.": serial(lambda _: True),
        "You average gradients. Each rank changes its own weights in every step, and the weights "
        "are averaged.": serial(right, "all gradients"),
        "In the last step of a round you average the gradients. Average the weights, which have "
        "moved apart.": serial(right, "last gradients"),
        "The last round is not averaged: steps is no multiple of every, and the ranks end with "
        "different weights.": serial(lambda step: step < whole and right(step)),
        "The average comes one step too early. The first one follows step number every - 1.": (
            serial(lambda step: step % every == 0 or step + 1 == steps)
        ),
        "The average comes one step too late. The first one follows step number every - 1.": (
            serial(lambda step: (step > 0 and step % every == 0) or step + 1 == steps)
        ),
        "Divide the sum of the weights by the number of ranks.": serial(right, "sum"),
        "The ranks never average.": serial(lambda _: False),
    }
    advice = "Each rank makes `every` steps with its own gradient; then all average their weights."
    found = [one for [one] in serial(right)]
    most = -(-steps // every) * 2 * (ranks - 1) * start.nbytes  # by a reduce and a broadcast
    saving = "One all-reduce of the weights for each round is enough."
    given = [(start, one, RATE, steps, every) for one in gradients]
    pieces = _pieces("w", found, advice)
    return Case(given, pieces, most, saving, mistakes=mistakes)


def inner(gradient: Gradient, w: Array, state: dict[str, Any], step: int) -> Array:
    """A step of SGD with momentum, whose velocity is kept in the state."""
    state["v"] = 0.5 * state.get("v", 0.0) + gradient(np.asarray(w), step)
    return np.asarray(w - RATE * state["v"])


def outer(theta: Array, velocity: Array, pseudo: Array) -> tuple[Array, Array]:
    """A step of SGD with Nesterov's momentum."""
    velocity = KEPT * velocity + pseudo
    return theta - OUTER * (pseudo + KEPT * velocity), velocity


def diloco(ranks: int, rounds: int, every: int) -> Case:
    """(comm, w, inner, outer, rounds, every) → the shared weights after the last outer step."""
    start, gradients = _start(ranks, size=2400)  # bytes count beside those of pickle

    def serial(mistake: str = "") -> Results:
        theta, velocity = [start] * ranks, [np.zeros_like(start)] * ranks
        ws, states = [start] * ranks, [dict[str, Any]() for _ in gradients]
        for at in range(rounds):
            if mistake == "state":
                states = [{} for _ in gradients]
            for step in range(at * every, at * every + every):
                number = step - at * every if mistake == "number" else step
                ws = [
                    inner(one, w, state, number)
                    for one, w, state in zip(gradients, ws, states, strict=True)
                ]
            moved = np.stack([old - w for old, w in zip(theta, ws, strict=True)])
            pseudo = [moved.mean(axis=0)] * ranks
            match mistake:
                case "own":
                    pseudo = list(moved)
                case "sum":
                    pseudo = [moved.sum(axis=0)] * ranks
                case "sign":
                    pseudo = [-one for one in pseudo]
                case "velocity":
                    velocity = [np.zeros_like(start)] * ranks
            after = [outer(*one) for one in zip(theta, velocity, pseudo, strict=True)]
            theta, velocity = [one for one, _ in after], [one for _, one in after]
            if mistake == "mean":
                theta = [np.mean(ws, axis=0)] * ranks
            ws = ws if mistake == "local" else list(theta)
        return _each(theta)

    mistakes = {
        "The inner state begins anew in each round. Keep it: make it once, before the first.": (
            serial("state")
        ),
        "The numbers of the steps begin anew in each round. Count on: at * every + step.": (
            serial("number")
        ),
        "Each rank makes the outer step with a pseudo-gradient of its own, and so its own "
        "velocity. Average it over the ranks first.": serial("own"),
        "Divide the sum of the pseudo-gradients by the number of ranks.": serial("sum"),
        "The pseudo-gradient has the wrong sign. It is what the round has subtracted: the old "
        "shared weights minus the local ones.": serial("sign"),
        "The outer velocity begins anew in each round. Keep it.": serial("velocity"),
        "You average the weights and make no outer step. The mean of the weights only gives the "
        "pseudo-gradient.": serial("mean"),
        "The next round goes on from the local weights. All ranks begin it from the shared ones.": (
            serial("local")
        ),
    }
    advice = "It is the shared weights after the last outer step."
    most = 1.6 * rounds * 2 * (ranks - 1) * start.nbytes  # by an all-gather that packs
    saving = "One all-reduce for each round is enough."
    given = [(start, partial(inner, one), outer, rounds, every) for one in gradients]
    pieces = _pieces("theta", [one for [one] in serial()], advice)
    return Case(given, pieces, most, saving, mistakes=mistakes)


def _late(
    ws: list[Array], gradients: list[Gradient], rounds: int, every: int, mistake: str = ""
) -> Results:
    """The serial program whose means arrive a round later."""
    theta, velocity, first, pending = ws[0], np.zeros(SIZE), ws, np.zeros(0)
    for at in range(rounds):
        for step in range(at * every, at * every + every):
            ws = [w - RATE * one(w, step) for one, w in zip(gradients, ws, strict=True)]
        moved = [w - start for w, start in zip(ws, first, strict=True)]
        old = theta
        if pending.size:
            theta, velocity = outer(theta, velocity, pending)
            kept = {
                "lost": [0 * one for one in ws],
                "never": [w - theta for w in ws],
                "twice": [w - old for w in ws],
            }
            ws = [theta + one for one in kept.get(mistake, moved)]
        pending = np.mean(moved, axis=0) * (1 if mistake == "sign" else -1)
        if mistake == "at once":
            theta, velocity = outer(theta, velocity, pending)
            pending, ws = np.zeros(0), [theta] * len(ws)
        first = ws
    if pending.size and mistake != "last":
        theta, _ = outer(theta, velocity, pending)
    return [[theta]] * len(ws)


def overlapped(ranks: int, rounds: int, every: int) -> Case:
    """(comm, w, inner, outer, begin_mean, rounds, every) → the shared weights at the end."""
    start, gradients = _start(ranks)
    waited: list[str] = []
    serial = partial(_late, [start] * ranks, gradients, rounds, every)

    def call(answer: Any, comm: Any, w: Array, gradient: Gradient) -> Any:
        made, means, begun = [0], [0], []

        def local(w: Array, step: int) -> Array:
            made[0] += 1
            return np.asarray(w - RATE * gradient(np.asarray(w), step))

        def begin_mean(comm: Any, array: Array) -> Callable[[], Array]:
            rank, began = comm.Get_rank(), made[0]
            means[0] += 1
            parts = [np.array(array) for _ in range(ranks)]
            others = [other for other in range(ranks) if other != rank]
            requests = [comm.Irecv(parts[other], source=other) for other in others]
            requests += [comm.Isend(parts[rank], dest=other) for other in others]
            begun.extend(requests)

            def finish() -> Array:
                if made[0] < min(began + every, rounds * every):
                    waited.append(
                        f"rank {rank} waits for a mean after {made[0] - began} of the {every} "
                        "local steps that could hide it. Call finish() when they are done."
                    )
                for one in requests:
                    one.Wait()
                return np.asarray(sum(parts) / ranks)

            return finish

        found = answer(comm, w, local, outer, begin_mean, rounds, every)
        for one in begun:
            one.Wait()
        if means[0] < rounds:
            waited.append(
                f"rank {comm.Get_rank()} has begun {means[0]} means in {rounds} rounds. Let "
                "begin_mean(comm, array) send all of them: a call that waits hides nothing."
            )
        return found

    def too_early(trace: Any) -> str:
        return waited[0] if waited else ""

    mistakes = {
        "The local weights begin the next round at theta, and what the rank did while the mean was "
        "under way is lost. Add it.": serial("lost"),
        "The local weights never get the outer step. They are theta plus what the rank did in this "
        "round.": serial("never"),
        "Part of the progress counts twice: the mean has brought what the rank did in the round "
        "before. Add only what it did since that mean was begun.": serial("twice"),
        "That is DiLoCo: the mean is used before the next round, so nothing overlaps.": (
            serial("at once")
        ),
        "The pseudo-gradient has the wrong sign: it is start - w.": serial("sign"),
        "The last mean is still under way. Finish it, and make its outer step.": serial("last"),
    }
    advice = "Apply the mean of a round one round later; each rank keeps its own progress."
    given = list(zip([start] * ranks, gradients, strict=True))
    pieces = _pieces("theta", [one for [one] in serial()], advice)
    return Case(given, pieces, too_much=too_early, call=call, mistakes=mistakes)


def _members(bits: int, ranks: int) -> list[int]:
    return [rank for rank in range(ranks) if bits >> rank & 1]


def quorum_mean(ranks: int, bits: int) -> Case:
    """(comm, gradient, living) → the mean of the living, called on these alone."""
    living = _members(bits, ranks)
    gradients = np.random.default_rng(bits).normal(size=(ranks, SIZE))
    total = gradients[living].sum(axis=0)

    def call(answer: Any, comm: Any, gradient: Array, living: list[int]) -> Any:
        return answer(comm, gradient, living) if comm.Get_rank() in living else np.zeros(SIZE)

    def on_each(found: Array) -> Results:
        return [[found if rank in living else np.zeros(SIZE)] for rank in range(ranks)]

    mistakes = {
        f"You divide by {ranks}, the size of the world. {len(living)} have taken part.": (
            on_each(total / ranks)
        ),
        "Divide by the number of ranks that have taken part.": on_each(total),
    }
    parts = {f"rank {one}": gradients[one] / len(living) for one in living}
    advice = "It is the mean over the ranks in living, on each of them."
    right, nothing = [Piece("mean", parts, advice)], [Piece("mean", {"": np.zeros(SIZE)})]
    pieces = [right if rank in living else nothing for rank in range(ranks)]
    return Case([(one, living) for one in gradients], pieces, call=call, mistakes=mistakes)


def commit(ranks: int, living_bits: int, good_bits: int) -> Case:
    """(comm, ok, living) → whether all of the living commit the step, the same on each."""
    living, good = _members(living_bits, ranks), _members(good_bits, ranks)

    def call(answer: Any, comm: Any, ok: bool, living: list[int]) -> Any:
        if comm.Get_rank() not in living:
            return np.zeros(1)
        found = answer(comm, ok, living)
        return None if found is None else np.ravel(np.asarray(found, float))

    def on_each(found: Callable[[int], bool]) -> Results:
        return [[np.array([float(r in living and found(r))])] for r in range(ranks)]

    votes = [one in good for one in living]
    mistakes: Mapping[str, Results] = {
        "Each rank decides alone, so one commits and another does not, and their weights differ "
        "from then on. All must decide the same.": on_each(lambda one: one in good),
        "The vote of one rank decides. Ask all of them.": on_each(lambda _: votes[0]),
        "A majority is not enough: a rank without the sum cannot make the step.": (
            on_each(lambda _: 2 * sum(votes) > len(votes))
        ),
        "One good vote is not enough: all of the living must have the sum.": (
            on_each(lambda _: any(votes))
        ),
    }
    right = [found for [found] in on_each(lambda _: all(votes))]
    advice = "Commit if every rank in living has ok, and else on none."
    pieces = _pieces("decision (1 commits)", right, advice)
    given = [(one in good, living) for one in range(ranks)]
    return Case(given, pieces, call=call, mistakes=mistakes)


def rejoin(ranks: int, living_bits: int, new_bits: int) -> Case:
    """(comm, w, v, step, living, new) → w, v and step, on the living and on the new ranks."""
    living, new = _members(living_bits, ranks), _members(new_bits, ranks)
    random = np.random.default_rng(living_bits)
    w, v, step = random.normal(size=SIZE), random.normal(size=SIZE), 17
    fresh = random.normal(size=SIZE), np.zeros(SIZE), 0

    def call(answer: Any, comm: Any, w: Array, v: Array, step: int, *lists: list[int]) -> Any:
        if comm.Get_rank() not in living + new:
            return np.zeros(1), np.zeros(1), np.zeros(1)
        found = answer(comm, w, v, step, *lists)
        if isinstance(found, (tuple, list)) and len(found) == 3:
            return *found[:2], np.ravel(found[2])
        return found

    advice = {
        "w": "Send the weights of a living rank to each new one.",
        "v": "The momentum must be copied as well: with a velocity of its own, the new rank leaves "
        "the others in its first step.",
        "step": "The number of the step must be copied as well: it says which examples are next, "
        "and when the training ends.",
    }
    state = {"w": w, "v": v, "step": np.array([float(step)])}
    source = "a living rank"
    pieces = [[Piece(name, {source: one}, advice[name]) for name, one in state.items()]] * ranks
    away = [Piece(name, {"": np.zeros(1)}) for name in state]
    pieces = [one if rank in living + new else away for rank, one in enumerate(pieces)]
    given = [(*((w, v, step) if r in living else fresh), living, new) for r in range(ranks)]
    return Case(given, pieces, call=call)
