"""What became of ranks that did not return, in sentences: the first cause first."""

import linecache
import re
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from labkit.cluster.ranks.in_rank import ErrorReport
from labkit.kinds import LabError, seconds_text

What = Literal["raised", "died", "hung", "stopped"]
UNREACHABLE = re.compile(
    "Network is unreachable|Temporary failure in name resolution|Name or service not known|"
    "No address associated with hostname"
)
HINTS = {
    "SIGKILL": "If no program did that, the machine was out of memory: take fewer ranks or less "
    "data.",
    "SIGSEGV": "A library crashed in it.",
    "SIGABRT": "A library gave up in it; its last lines say why.",
}
# What ranks raise that have lost a peer: TensorFlow, gloo, Horovod, Python's own connections.
LOST_A_PEER = re.compile(
    "UnavailableError|AbortedError|CancelledError|DeadlineExceeded|Connection|Socket closed|"
    "EOFError|BrokenPipe|Broken pipe|Horovod has been shut down|HorovodInternalError"
)
# In a message: colours, and names and attributes of nodes, which change from run to run.
NOISE = re.compile(
    r"\x1b\[[0-9;]*m| used by \{\{node .*?\}\}| with these attrs: .*|\{\{\S+ \S+\}\} ?"
)
# Lines that tell where a node or layer was made or called, and with what.
MADE = re.compile(r'^\s*File ".*(\n\s.*)?|^Arguments received by .*(\n\s.*)*', re.MULTILINE)
ASIDES = ("File ", "Detected at node", "Graph execution error",
          "Exception encountered", "Additional GRPC error", ":UNKNOWN:")  # fmt: skip
LONGEST = 300  # characters of an exception, in a sentence
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
THREAD = re.compile(r"\n\s*\n|(?=^(?:Current thread|Thread) 0x)", re.MULTILINE)
ROOM = Path(__file__).parents[1]
TRANSPORT = str(ROOM / "ranks" / "transport.py")
MACHINERY = (str(ROOM), str(ROOM.parent / "shipping.py"))
FRAMEWORKS = re.compile(r"-packages/(tensorflow|torch|horovod|mpi4py)/")  # have collectives
LIBRARIES = re.compile(r"/(lib/python3\.\d+|site-packages|dist-packages)/")  # of any Python

# The first rank that failed, in the message of torchrun.
TORCHRUN = re.compile(r"Root Cause.*? rank +: (\d+).*? exitcode +: (-?\d+)", re.DOTALL)


@dataclass(frozen=True)
class RankError:
    """Why a rank has no result."""

    rank: int
    what: What
    words: str
    """What follows "Rank 2" in the sentence."""
    kind: str = ""
    """The name of the exception's type, or "" if the program raised nothing."""
    message: str = ""
    traceback: str = ""
    stack: str = ""
    """Where all threads of the rank were, as faulthandler saw it."""
    seconds: float = 0.0
    """When, after all ranks had begun."""
    where: str = ""
    """The line of the program: "line 7 of train (`strategy.run(step)`)"."""

    @property
    def text(self) -> str:
        """The sentence about this rank."""
        return f"Rank {self.rank} {self.words}"


def raised(rank: int, report: ErrorReport, seconds: float) -> RankError:
    """Returns the error of a rank whose program has raised an exception."""
    where = _line(report.frames)
    at = f", in {where}" if where else ""
    if report.kind == "LabError":
        words = f"stopped{at}: {report.message}"
    else:
        words = f"raised {_sentence(report)}{at}."
    said = (report.kind, report.message, report.traceback)
    return RankError(rank, "raised", words, *said, seconds=seconds, where=where)


def died(
    rank: int, code: int, seconds: float, stack: str, reason: str = "",
    *, begun: bool = True, last_line: str = "",
) -> RankError:  # fmt: skip
    """Returns the error of a rank whose process has ended without a result or an exception."""
    where = line_of_stack(stack)
    when = f"after {seconds_text(seconds)}{f', in {where}' if where else ''}"
    if reason:
        words = f"has ended {when}: {reason}"
    elif code >= 0:
        words = f"ended itself with exit status {code} {when}."
        words += f" Its last line was {last_line[:LONGEST]!r}." if last_line else ""
    else:
        known = -code in {*signal.Signals}
        name = signal.Signals(-code).name if known else "unknown to Python"
        words = f"was killed by signal {-code} ({name}) {when}. {HINTS.get(name, '')}".rstrip()
    if not begun:
        words += " It had not begun the program."
    return RankError(rank, "died", words, stack=stack, seconds=seconds, where=where)


def left(rank: int, what: What, seconds: float, where: str, stack: str) -> RankError:
    """Returns the error of a rank that was at work when the run ended."""
    words = f"was in {where}{' and was stopped' if what == 'stopped' else ''}."
    return RankError(rank, what, words, stack=stack, seconds=seconds, where=where)


def cause_of(errors: Iterable[RankError], tolerated: Collection[int] = ()) -> RankError:
    """Returns the first error that is more than the loss of another rank.

    The error of a tolerated rank counts only if all other ranks merely lost a peer.
    """
    by_time = sorted(errors, key=lambda error: error.seconds)
    own = [e for e in by_time if e.what in ("raised", "died") and not _lost_a_peer(e)]
    not_tolerated = [error for error in own if error.rank not in tolerated]
    return (not_tolerated or own or by_time)[0]


def failure(
    first: str | RankError,
    errors: Mapping[int, RankError],
    results: Mapping[int, Any],
    advice: str = "",
) -> LabError:
    """Returns the LabError of a run: its cause or a first sentence, then the other ranks."""
    together: dict[tuple[str, str], list[RankError]] = {}
    for error in sorted(errors.values(), key=lambda e: (e.what in ("hung", "stopped"), e.seconds)):
        if error is not first:
            together.setdefault(_kind(error), []).append(error)
    sentences = [first.text if isinstance(first, RankError) else first]
    for kind, alike in together.items():
        ranks, words = [error.rank for error in alike], alike[0].words
        if isinstance(first, RankError) and kind == _kind(first):
            sentences.append(f"So did {listed(ranks).lower()}.")
        elif alike[0].what in ("hung", "stopped"):
            if len(ranks) > 1:
                words = words.replace("was in", "were in").replace("and was st", "and were st")
            sentences.append(f"{listed(ranks)} {words}")
        else:
            sentences.append(f"Then {listed(ranks).lower()} {words}")
    fault = LabError(" ".join([*sentences, advice]).strip())
    fault.errors = dict(errors)  # type: ignore[attr-defined]
    fault.results = dict(results)  # type: ignore[attr-defined]
    return fault


def found_no_internet(errors: Iterable[RankError]) -> bool:
    """Whether a rank tried to reach the internet from its private network."""
    return any(UNREACHABLE.search(error.words) for error in errors)


def line_of_stack(text: str) -> str:
    """Returns the line of the program in a list of threads by faulthandler, or ""."""
    latest = ""
    for frames in _frames_of_program(text):
        latest = _line(frames[::-1]) or latest
    return latest


def waits_in_a_collective(text: str) -> bool:
    """Whether the program is in a call of a framework, or of labkit's communicator."""
    for frames in _frames_of_program(text):
        innermost = [file for file, _, _ in frames if file != "<string>"][:2]  # generated code
        return bool(FRAMEWORKS.search(innermost[0])) or TRANSPORT in innermost
    return False


def _frames_of_program(text: str) -> Iterator[list[tuple[str, int, str]]]:
    """Yields for each thread with the program its calls (file, line, function), innermost first."""
    for thread in THREAD.split(text):
        frames = [(file, int(line), name) for file, line, name in FRAME.findall(thread)]
        if any(name == "call_program" for _, _, name in frames):
            yield frames


def listed(ranks: Iterable[int]) -> str:
    """Returns ranks in words.

    >>> listed([2]), listed([0, 1, 3])
    ('Rank 2', 'Ranks 0, 1 and 3')
    """
    *names, last = (str(rank) for rank in sorted(ranks))
    return f"Ranks {', '.join(names)} and {last}" if names else f"Rank {last}"


def _kind(error: RankError) -> tuple[str, str]:
    """Returns the same for errors that share a sentence: the same exception at the same line."""
    return (error.words.partition(":")[0] if error.what == "raised" else error.what), error.where


def _lost_a_peer(error: RankError) -> bool:
    return error.what == "raised" and LOST_A_PEER.search(error.words) is not None


def lines_of_message(text: str) -> list[str]:
    """Returns the lines of a message without the stack and graph nodes that TensorFlow adds."""
    text = re.sub(r"\{\n.*?\n\}", "{…}", NOISE.sub("", text), flags=re.DOTALL)  # whole tensors
    lines = [line for line in text.splitlines() if line.strip()]
    kept = [line for line in MADE.sub("", text).splitlines() if line.strip()]
    kept = [line for line in kept if not line.lstrip().startswith(ASIDES)]
    return [" ".join(line.split()) for line in kept or lines]


def _sentence(report: ErrorReport) -> str:
    """Returns kind and message, shortened. The traceback has all of it."""
    if found := TORCHRUN.search(report.message):
        return f"{report.kind}: rank {found[1]} of torchrun ended with exit code {found[2]}"
    text = " ".join(lines_of_message(report.message))
    text = f"{text[:LONGEST].rstrip()}..." if len(text) > LONGEST else text.rstrip(".")
    return f"{report.kind}: {text}" if text else report.kind


def _line(frames: Sequence[tuple[str, int, str]]) -> str:
    """Returns the innermost line of the program, not of a library. `frames`: innermost last."""
    for belongs in (_is_the_users, _is_labkits):
        for file, line, function in reversed(frames):
            if belongs(file):
                source = linecache.getline(file, line).strip()
                source = f"{source[:67]}..." if len(source) > 70 else source
                return f"line {line} of {function}" + (f" (`{source}`)" if source else "")
    return ""


def _is_the_users(file: str) -> bool:
    generated = file.startswith("<frozen") or "__autograph_generated" in file
    ours = file.startswith(("<string>", str(ROOM.parent)))
    return not (generated or ours or LIBRARIES.search(file))


def _is_labkits(file: str) -> bool:
    return file.startswith(str(ROOM.parent)) and not file.startswith(MACHINERY)
