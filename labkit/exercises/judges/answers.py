"""Judges of answers: a number with its unit, a word, a function that is called.

>>> number(4.8, "MB")(4.8e6)
Traceback (most recent call last):
labkit.exercises.task.Wrong: You gave bytes; the question asks for MB.
"""

import copy
import importlib
import inspect
import math
import reprlib
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from labkit.exercises.blanks import raised
from labkit.exercises.task import Wrong, letters
from labkit.kinds import LabError
from labkit.time_limit import TimeLimit, ended_within, time_limit

UNITS: tuple[dict[str, float], ...] = (
    {"bits": 1 / 8, "bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "MiB": 2**20, "GiB": 2**30},
    {"bytes/s": 1, "MB/s": 1e6, "GB/s": 1e9},
    {"µs": 1e-6, "ms": 1e-3, "s": 1, "minutes": 60, "hours": 3600, "days": 86_400},
    {"a share of 1": 1, "%": 0.01},
    {"J": 1, "Wh": 3600, "kWh": 3.6e6},
)
TIME_LIMIT = 10.0  # seconds; a function of an exercise is done in milliseconds
GRACE = 3.0  # seconds for what was interrupted to end


def number(truths: Any, unit: str = "", *, within: float = 1e-6) -> Callable[[Any], None]:
    """The judge of a number, or of a tuple of right numbers; within=0.02 lets 2 % pass."""
    truth, *others = truths if isinstance(truths, tuple) else (truths,)

    def judge(answer: Any) -> None:
        try:
            given = float(answer)
        except OverflowError:  # a whole number of Python has no largest
            given = math.inf if answer > 0 else -math.inf
        except (TypeError, ValueError):
            given = math.nan
        if math.isnan(given):
            raise Wrong(f"{reprlib.repr(answer)} is not a number. Write answer = 123.")
        if any(math.isclose(given, one, rel_tol=within) for one in (truth, *others)):
            return
        sizes = next((one for one in UNITS if unit in one), {})
        for other, size in sizes.items():
            if math.isclose(given * size, truth * sizes[unit], rel_tol=within):
                raise Wrong(f"You gave {other}; the question asks for {unit}.")
        raise Wrong(f"{given:g} is too {'large' if given > truth else 'small'}.")

    return judge


def word(*truths: str) -> Callable[[Any], None]:
    """The judge of a word: case, spaces, "the" and a prefix such as MPI_ do not matter."""

    def judge(answer: Any) -> None:
        if not isinstance(answer, str):
            raise Wrong(f'{reprlib.repr(answer)} is not a word in quotes. Write answer = "...".')
        if letters(answer) not in map(letters, truths):
            raise Wrong(f"{reprlib.repr(answer)} is not it.")

    return judge


def judged(examine: Callable[[Any], Any], seconds: float | None = None) -> Callable[[Any], Any]:
    """The judge of a function: `examine` raises what it does wrong, and is ended in time."""

    def judge(answer: Any) -> Any:
        if not callable(answer):
            raise Wrong(f"{reprlib.repr(answer)} is not a function. Write its name, without ().")
        return stopped(seconds, examine, answer) if seconds else examine(answer)

    judge.seconds = seconds  # type: ignore[attr-defined]  # for the card
    return judge


def function(
    examine: Callable[[Callable[..., Any]], Any], seconds: float = TIME_LIMIT
) -> Callable[[Any], Any]:
    """The judge of a function whose own exceptions are reported with their line."""

    def examine_called(answer: Any) -> Any:
        def called(*arguments: Any) -> Any:
            try:
                return answer(*arguments)
            except LabError:
                raise
            except (Exception, SystemExit, GeneratorExit) as fault:  # noqa: BLE001 (nor does exit())
                raise Wrong(raised(fault, answer)) from None

        return examine(called)

    return judged(examine_called, seconds)


def each(
    told: Callable[..., None],
    run: Callable[..., Mapping[str, Any]],
    *cases: Mapping[str, Any],
    seconds: float = TIME_LIMIT,
) -> Callable[[Any], Any]:
    """The judge of a function: `run(answer, **case)` gives facts on what it does in each case."""

    def examine(answer: Callable[..., Any]) -> None:
        for case in cases:
            told(**{**case, **run(answer, **case)})

    return function(examine, seconds)


def beside(answer: Any, observe: Callable[..., Any], *args: Any) -> Any:
    """What `observe(answer, *args)` has seen, as plain data.

    `labkit grade` has the answer in another process: `observe` is called there, and whoever calls
    this judges what comes back, and believes nothing that it says of itself.
    """
    there = getattr(answer, "_beside", None)
    return there(observe, *args) if there else observe(answer, *args)


# While `labkit grade` lets a judge examine an answer in the answer's own process: the models and
# numbers that the judge got from it.
_record: list[Any] | None = None


def note(found: Any) -> None:
    """Keep what a judge has got from an answer."""
    if _record is not None:
        _record.append(found)


def examined(answer: Any, module: str, judge: str) -> list[Any]:
    """Let a judge examine it here; what it got, as plain data.

    `labkit grade` compares that with what the worked solution gives: a verdict alone is not
    believed, as it comes from a process that has run the answer.
    """
    global _record  # noqa: PLW0603 (of this process, which examines one answer)
    _record = []
    answer = getattr(answer, "value", answer)  # its cells run before the judge watches
    getattr(importlib.import_module(module), judge)()(answer)
    return [one.get_weights() if hasattr(one, "get_weights") else one for one in _record]


def stopped(seconds: float, examine: Callable[[Any], Any], answer: Any) -> Any:
    """End it when it takes longer, as Ctrl-C would: also time.sleep or a lock, which wait in C.

    What swallows that is ended by a time limit. A kernel of TensorFlow that never ends cannot be
    ended from its own process.
    """
    began, done, main = time.monotonic(), threading.Event(), threading.main_thread()
    thread = threading.get_native_id()
    signals = threading.current_thread() is main and hasattr(signal, "pthread_kill")
    sending = threading.Lock()

    def interrupt() -> None:
        if not ended_within(seconds, done.wait, thread):
            with sending:
                if not done.is_set():
                    signal.pthread_kill(main.ident or 0, signal.SIGINT)
        if not done.wait(2 * GRACE):
            print("It cannot be interrupted. Restart the kernel: your progress is kept.")

    if signals:
        threading.Thread(target=interrupt, daemon=True).start()
    try:
        with time_limit(seconds + GRACE * signals):
            try:
                return examine(answer)
            finally:
                with sending:  # a signal on its way arrives here, and none is sent later
                    done.set()
    except (TimeLimit, KeyboardInterrupt):
        text = f"It was stopped after {time.monotonic() - began:.0f} s and was not done."
        raise Wrong(f"{text} Look for a loop that does not end.") from None
    finally:
        done.set()


def numbers_in(result: Any, what: str) -> list[float]:
    """The numbers of a list, an array or a range."""
    try:
        found = [float(one) for one in result]
    except (TypeError, ValueError, OverflowError):
        raise Wrong(f"It returned {reprlib.repr(result)}: return {what}.") from None
    note(found)
    return found


def same_as(
    solution: str,
    cases: Iterable[tuple[Any, ...]],
    slips: Iterable[tuple[str, str, str]] = (),
    *,
    within: float = 1e-6,
) -> Callable[[Any], Any]:
    """A function that must return what the worked solution does: numbers, words, lists of them.

    It is called with each case; numbers may differ by a share of 1, `within`. A slip is a mistake
    in the solution, (what is there, what is wrong, why): who returns the same is told why.
    """
    right, called_with = solved(solution), list(cases)
    wrong = [(solved(solution.replace(old, new)), reason) for old, new, reason in slips]

    def examine(mine: Callable[..., Any]) -> None:
        suspects, fault = wrong, ""
        for case in called_with:
            # Copies: what a function does to its arguments must not reach the next answer.
            try:
                found, truth = plain(mine(*copy.deepcopy(case))), plain(right(*case))
            except Wrong:
                if fault:
                    break
                raise
            with warnings.catch_warnings(action="ignore"):  # of mistakes that are not the student's
                suspects = [one for one in suspects if same(found, plain(one[0](*case)), within)]
            if not (fault or same(found, truth, within)):
                named = zip(inspect.signature(right).parameters, case, strict=True)
                given = ", ".join(f"{k}={reprlib.repr(v)}" for k, v in named if not callable(v))
                fault = f"Called with {given} it returned {found!r:.150}; right is {truth!r:.150}."
        if fault:
            raise Wrong(" ".join([fault, *(reason for _, reason in suspects[:1])]))

    return function(examine)


def solved(source: str) -> Callable[..., Any]:
    """The function that a worked solution defines; tests compare it with those of frameworks."""
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102 (our own source)
    return space.popitem()[1]  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """Numbers, words, and lists of them; tuples, arrays and iterators are lists."""
    if isinstance(value, str):
        return value.strip().casefold().replace("_", "-")
    if hasattr(value, "numpy"):  # a tensor
        value = value.numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Iterable):
        return [*map(plain, value)]
    return value if value == value else "nan"  # which equals itself


def same(one: Any, other: Any, within: float) -> bool:
    """Whether two plain values are the same, numbers by a share of 1."""
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(*pair, within) for pair in pairs)
    if isinstance(one, Real) and isinstance(other, Real):
        return math.isclose(one, other, rel_tol=within, abs_tol=within / 1000)
    return bool(one == other)
