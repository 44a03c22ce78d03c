"""What became of ranks that did not return, in sentences: the first cause first."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.cluster.places_in_code import Place, place_in_frames, place_in_stack
from labkit.cluster.rank import account_of
from labkit.kinds import LabError, seconds_text

__all__ = ["RankError", "What", "cause_of", "died", "failure", "left", "listed", "raised"]

What = Literal["raised", "died", "hung", "stopped"]
UNREACHABLE = (
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Name or service not known",
    "No address associated with hostname",
)
HINTS = {
    "SIGKILL": "If nobody did that, the machine was out of memory: take fewer ranks or less data.",
    "SIGSEGV": "A library crashed in it.",
    "SIGABRT": "A library gave up in it; its last lines say why.",
    "SIGBUS": "A library crashed in it; a full disk or /dev/shm can be the reason.",
    "SIGILL": "A library is built for another processor.",
}
# What ranks say that have lost a peer: TensorFlow, gloo, and Python's own connections.
LOST_A_PEER = (
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceeded",
    "Connection",
    "Socket closed",
    "EOFError",
    "BrokenPipe",
    "Broken pipe",
)
# Lines of a message that tell where a node of a graph was made, or what gRPC thinks of it.
ASIDES = ("  ", "File ", "Detected at node", "Additional GRPC error", ":UNKNOWN:", "\t")
MOST = 6  # ranks told of one by one
LONGEST = 300  # characters of an exception, in a sentence


@dataclass(frozen=True)
class RankError:
    """Why a rank has no result."""

    rank: int
    what: What
    text: str
    """One sentence."""
    traceback: str = ""
    exception: BaseException | None = field(default=None, compare=False)
    """What was raised; None where it cannot be sent, or its library is not loaded here."""
    stack: str = ""
    """Where all threads of the rank were, as faulthandler saw it."""
    seconds: float = 0.0
    """When, after all ranks had begun."""
    where: str = ""
    """The line of the program: "line 7 of train (`strategy.run(step)`)"."""

    def __str__(self) -> str:
        return self.text


def raised(rank: int, payload: bytes | memoryview, seconds: float) -> RankError:
    """The program has raised on this rank."""
    account = account_of(payload)
    place = place_in_frames(account.frames)
    at = f", in {place}" if place else ""
    exception = account.unpacked()
    if isinstance(exception, LabError):
        text = f"Rank {rank} stopped{at}: {account.sentence}"
    else:
        text = f"Rank {rank} raised {_shortened(account.sentence)}{at}."
    return RankError(
        rank,
        "raised",
        text,
        traceback=account.traceback,
        exception=exception,
        seconds=seconds,
        where=str(place or ""),
    )


def died(
    rank: int, code: int, seconds: float, stack: str, reason: str = "", *, begun: bool = True
) -> RankError:
    """The process has ended, and has neither returned nor raised."""
    place = place_in_stack(stack)
    text = _how_it_ended(rank, code, seconds, place, reason)
    if not begun:
        text += " It had not begun the program."
    return RankError(rank, "died", text, stack=stack, seconds=seconds, where=str(place or ""))


def cause_of(errors: Iterable[RankError], tolerated: Collection[int] = ()) -> RankError:
    """The error that came first, unless it only says that another rank had gone.

    A tolerated rank is the cause only if nobody else has a fault of their own.
    """
    by_time = sorted(errors, key=lambda error: error.seconds)
    own = [e for e in by_time if e.what in ("raised", "died") and not _lost_a_peer(e)]
    not_tolerated = [error for error in own if error.rank not in tolerated]
    return (not_tolerated or own or by_time)[0]


def _lost_a_peer(error: RankError) -> bool:
    return error.what == "raised" and any(words in error.text for words in LOST_A_PEER)


def _shortened(sentence: str) -> str:
    """TensorFlow's messages are pages long, with a stack inside; all of it is in the traceback."""
    lines = (
        re.sub(r"\{\{\S+ \S+\}\}", "", sentence).replace("Graph execution error:", "").splitlines()
    )
    said = [line for line in lines if not line.startswith(ASIDES)]
    text = " ".join(" ".join(said or lines).split())
    return f"{text[:LONGEST].rstrip()}..." if len(text) > LONGEST else text.rstrip(".")


def left(rank: int, what: What, seconds: float, where: str, stack: str) -> RankError:
    """The rank was at work when the run ended."""
    verb = "was in" if what == "hung" else "was stopped with the others, in"
    text = f"Rank {rank} {verb} {where}."
    return RankError(rank, what, text, stack=stack, seconds=seconds, where=where)


def _how_it_ended(rank: int, code: int, seconds: float, where: Place | None, reason: str) -> str:
    when = f"after {seconds_text(seconds)}"
    at = f", in {where}" if where else ""
    if reason:
        return f"Rank {rank} has ended {when}{at}: {reason}"
    if code >= 0:
        return f"Rank {rank} ended itself with exit status {code} {when}{at}."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown to Python"
    # Where it killed itself, nobody needs to be told of memory.
    hint = "" if where and name == "SIGKILL" else HINTS.get(name, "")
    return f"Rank {rank} was killed by signal {-code} ({name}) {when}{at}.{f' {hint}' * bool(hint)}"


def failure(
    first: str,
    errors: Mapping[int, RankError],
    results: Mapping[int, Any],
    network: str = "",
    advice: str = "",
) -> LabError:
    """The LabError of a run. `first` is its first sentence; `errors` are told after it.

    `network` is added where a rank found no way out of its own network.
    """
    others = [error for error in errors.values() if error.text != first]
    sentences = [first, *_consequences(first, others)]
    sentences += _places(error for error in others if error.what in ("stopped", "hung"))
    everything = " ".join([first, *(error.text for error in errors.values())])
    if network and any(words in everything for words in UNREACHABLE):
        advice = network
    fault = LabError(" ".join([*sentences, advice]).strip())
    fault.errors = dict(errors)  # type: ignore[attr-defined]
    fault.results = dict(results)  # type: ignore[attr-defined]
    return fault


def _consequences(first: str, others: Iterable[RankError]) -> list[str]:
    """What other ranks said after the first; those that said the same, together."""
    together: dict[tuple[str, ...], list[RankError]] = {}
    same: tuple[str, ...]
    for error in sorted(others, key=lambda error: error.seconds):
        if error.what in ("raised", "died"):
            words = error.text.removeprefix(f"Rank {error.rank} ")
            # The same fault at the same place; its message may name other peers.
            same = (words.partition(":")[0], error.where) if error.where else (words,)
            together.setdefault(same, []).append(error)
    said = []
    for same, alike in together.items():
        words = alike[0].text.removeprefix(f"Rank {alike[0].rank} ")
        ranks = [error.rank for error in alike]
        if first.partition(" ")[2].partition(" ")[2].startswith(same[0]) and same[-1] in first:
            said.append(f"So did {listed(ranks, 'rank')}.")
        else:
            said.append(f"Then {listed(ranks, 'rank')} {words}")
    more = len(said) - MOST
    return said if more <= 0 else [*said[:MOST], f"{more} more of such kind: see .errors."]


def _places(errors: Iterable[RankError]) -> list[str]:
    """Ranks that were at the same place are named together."""
    together: dict[tuple[str, str], list[int]] = {}
    for error in errors:
        together.setdefault((error.what, error.where), []).append(error.rank)
    found = []
    for (what, place), ranks in list(together.items())[:MOST]:
        verb = "was" if len(ranks) == 1 else "were"
        stopped = f" and {verb} stopped" if what == "stopped" else ""
        found.append(f"{listed(ranks)} {verb} in {place}{stopped}.")
    return found


def listed(ranks: Iterable[int], word: str = "Rank") -> str:
    """Ranks in words.

    >>> listed([2]), listed([0, 1, 3])
    ('Rank 2', 'Ranks 0, 1 and 3')
    """
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) == 1:
        return f"{word} {names[0]}"
    return f"{word}s {', '.join(names[:-1])} and {names[-1]}"
