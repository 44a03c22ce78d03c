"""What one process does: its steps and parts, samples of its lines, and what is left out now.

`LABKIT_EXPLAIN` names a JSON file: `out` (a folder for reports), `folders` (of the user's code),
`watch`; in a shorter run also `kind` of step, `stop`, `always` (what is left out throughout),
`phases` ([steps, what is left out]) and `values` (what a change needs to know).
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import sys
import threading
import time
import zlib
from collections import Counter

TYPE_CHECKING = False  # what is imported here, a module of the user's cannot stand in for
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

with open(os.environ["LABKIT_EXPLAIN"], encoding="utf-8") as _file:
    CONFIG: dict[str, Any] = json.load(_file)
with open(os.path.join(CONFIG["out"], "python"), "a", encoding="ascii"):
    pass  # here a Python is watched
WATCH: bool = CONFIG["watch"]
VALUES: dict[str, Any] = CONFIG.get("values", {})
FOLDERS = tuple(CONFIG["folders"])
ALWAYS = frozenset(CONFIG.get("always", ()))
PHASES: list[tuple[int, list[str]]] = CONFIG.get("phases", [])
ASKED = ALWAYS.union(*(names for _, names in PHASES))  # what this run leaves out at any time
WARM: int = CONFIG.get("warm", 3)
SAMPLING = 0.007  # of the time
ENOUGH = 20_000  # steps, after which nothing more is kept of a long run
SEEN_OFTEN = 2000  # reads of a value, which take a microsecond
OPEN = open
HERE = os.path.dirname(os.path.abspath(__file__))
now = time.perf_counter  # CLOCK_MONOTONIC: one clock for all processes of a machine


class Seeing:
    """What one process saw."""

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.born = now()
        self.marks: dict[str, list[float]] = {}
        self.leading = ""
        self.cpu: list[float] = []  # seconds of CPU of this process, at each leading step
        self.delay: list[float] = []  # seconds that the main thread could run and had no core
        self.epochs: list[int] = []  # leading steps at each start of a training iterator
        self.stack: list[list[Any]] = []
        self.total: Counter[str] = Counter()
        self.window: dict[str, float] = {}  # the parts between them and the last step
        self.count: Counter[str] = Counter()
        self.spans: list[tuple[str, float, float]] = []
        self.chains: Counter[tuple[Any, ...]] = Counter()
        self.threads: Counter[tuple[Any, ...]] = Counter()
        self.samples = 0
        self.essential: set[str] = set()  # lines of the user's without which there is no step
        self.sites: dict[str, str] = {}
        self.notes: dict[str, Any] = {}
        self.batches: list[Any] = []
        self.inputs: list[Any] = []
        self.shapes: list[list[int]] = []
        self.weights: dict[str, list[float]] = {}
        self.evaluating = False
        self.backwards = 0
        self.off: frozenset[str] = ALWAYS
        self.phase = 0
        self.switch_at = WARM
        self.switches: list[tuple[int, list[str]]] = []
        self.own = 0.0  # seconds of CPU in `step`
        self.sampler: threading.Thread | None = None
        self.end = threading.Event()
        self.sched = -1


me = Seeing()


# ---- the user's lines ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def of_user(file: str) -> bool:
    return file.startswith(FOLDERS) and "site-packages" not in file and "dist-packages" not in file


def users(frame: Any) -> Any:
    """The innermost frame of the user's code, from this one outwards."""
    while frame is not None and not of_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def line(depth: int = 2) -> str:
    found = users(sys._getframe(depth))
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found else ""


def chain(frame: Any) -> tuple[tuple[str, ...], str]:
    """The user's lines on this stack, outermost first, and what the innermost of them calls."""
    lines: list[str] = []
    callee, before = "", None
    while frame is not None:
        code = frame.f_code
        if of_user(code.co_filename):
            if not lines and before is not None:
                name = getattr(before, "co_qualname", before.co_name)
                callee = f"{module_of(before.co_filename)}.{name}"
            number = frame.f_lineno or code.co_firstlineno  # None between two lines
            lines.append(f"{code.co_filename}:{number}:{code.co_name}")
        if not code.co_filename.startswith(HERE):
            before = code
        frame = frame.f_back
    return tuple(reversed(lines)), callee


@functools.lru_cache(maxsize=4096)
def module_of(file: str) -> str:
    parts = file[:-3].replace("\\", "/").split("/")
    for root in ("site-packages", "dist-packages"):
        if root in parts:
            return ".".join(parts[parts.index(root) + 1 :])
    return ".".join(parts[-2:]) if len(parts) > 1 and parts[-2][:6] != "python" else parts[-1]


def essential(depth: int = 2, times: int = 6) -> None:
    """The lines on this stack take part in a step: they are not left out."""
    if not WATCH or len(me.marks.get(me.leading, ())) > times:
        return
    me.essential.update(stack(sys._getframe(depth)))


def stack(frame: Any) -> list[str]:
    """The user's lines from this frame outwards."""
    found = []
    while frame is not None:
        if of_user(frame.f_code.co_filename):
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return found


def note(key: str, value: Any, depth: int = 3) -> None:
    me.notes[key] = value
    me.sites.setdefault(key, line(depth))


# ---- parts ---------------------------------------------------------------------------------------


class Unseen:
    """A program's own traceback shows no lines of ours."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, fault: BaseException | None, trace: TracebackType | None) -> None:
        if fault and trace and trace.tb_frame.f_code.co_filename.startswith(HERE):
            fault.__traceback__ = trace.tb_next


class InPart(Unseen):
    __slots__ = ("part",)

    def __init__(self, part: str) -> None:
        self.part = part

    def __enter__(self) -> None:
        if threading.get_ident() == me.main:
            me.stack.append([self.part, now(), 0.0])

    def __exit__(self, _: object, fault: BaseException | None, trace: TracebackType | None) -> None:
        if threading.get_ident() == me.main and me.stack:
            close()
        super().__exit__(_, fault, trace)


def close() -> None:
    part, start, inner = me.stack.pop()
    spent = now() - start
    me.total[part] += spent - inner
    me.count[part] += 1
    if spent > 5e-5 and WATCH and len(me.spans) < ENOUGH:
        me.spans.append((part, start, spent))
    if me.stack:
        me.stack[-1][2] += spent
    else:
        me.total["whole " + part] += spent


def wrap(
    owner: Any,
    name: str,
    part: str,
    instead: Callable[..., Any] | None = None,
    users_own: bool = False,
) -> None:
    """Time `owner.name` as `part`; where the part is left out, call `instead`."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "_labkit"):
        return

    @functools.wraps(original)
    def timed(*args: Any, **options: Any) -> Any:
        if users_own and not of_user(sys._getframe(1).f_code.co_filename):
            return original(*args, **options)
        if instead is not None and part in me.off:
            return instead(*args, **options)
        if part not in me.sites:
            me.sites[part] = line()
        if part == "sync" and me.count[part] > SEEN_OFTEN:  # timing a million reads would cost more
            setattr(owner, name, original)
        with InPart(part):
            return original(*args, **options)

    timed._labkit = True  # type: ignore[attr-defined]
    try:
        setattr(owner, name, timed)
    except (AttributeError, TypeError):
        pass


def nothing(*_: Any, **__: Any) -> None:
    return None


# ---- steps ---------------------------------------------------------------------------------------

switched: list[Callable[[], None]] = []  # what is a state of the process rather than of a call


def step(kind: str) -> None:
    """A step of training has ended."""
    begin, before = now(), time.thread_time()
    marks = me.marks.setdefault(kind, [])
    if len(marks) >= ENOUGH:
        me.notes["more"] = True
        return
    marks.append(begin)
    n = len(marks)
    if not me.leading:
        me.leading = CONFIG.get("kind") or kind
    if kind != me.leading:
        return
    me.cpu.append(time.process_time())
    me.delay.append(queued())
    _collected()
    if n == 1:
        _start_sampler()
        if WATCH:
            _watch_collections()
    if n == WARM:
        me.total.clear()
        me.chains.clear()
        me.threads.clear()
        me.samples = 0
    me.window = dict(me.total)
    if WATCH and n % 10 == 0:  # a second training may stand elsewhere
        me.essential.update(stack(sys._getframe(1)))
    if n == me.switch_at:
        _switch(n)
    me.own += time.thread_time() - before
    if not WATCH and n >= CONFIG["stop"]:
        time.sleep(0.3 if ranks() > 1 else 0.0)  # the others are still in their last collective
        os._exit(0)


def _switch(n: int) -> None:
    """The next phase begins: other things are left out."""
    if me.phase >= len(PHASES):
        me.off = ALWAYS
        return
    steps, names = PHASES[me.phase]
    me.phase += 1
    me.switch_at = n + steps
    me.off = ALWAYS | frozenset(names)
    me.switches.append((n, names))
    for one in switched:
        one()


def queued() -> float:
    """Seconds that this thread was ready to run and had no core."""
    try:
        if me.sched < 0:  # not at the start: the program's own files have the numbers they had
            me.sched = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        return int(os.pread(me.sched, 64, 0).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # no such file, or the program closed what it found
        return 0.0


def ranks() -> int:
    rank()
    return int(me.notes.get("world") or os.environ.get("WORLD_SIZE") or 1)


# ---- a statement of the user's, which a copy of the file asks about ------------------------------


def keep(name: str) -> bool:
    """Is this statement executed now? Its first time always is."""
    if name in me.off and me.count["ran " + name]:
        return False
    me.count["ran " + name] += 1
    return True


_values: dict[str, Any] = {}


def again(name: str, compute: Callable[[], Any]) -> Any:
    """The value of an expression of the user's; while it is left out, the value it had before."""
    if name in me.off and name in _values:
        return _values[name]
    value = compute()
    if name in ASKED:
        _values[name] = value
    return value


def remembered(name: str) -> Callable[[Any], Any]:
    """A function of the user's that returns what it returned before, while it is left out."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def repeat(*args: Any, **options: Any) -> Any:
            return again(name, lambda: function(*args, **options))

        return repeat

    return decorate


# ---- samples and reports -------------------------------------------------------------------------


def _start_sampler() -> None:
    me.sampler = threading.Thread(target=sample, daemon=True)
    try:
        me.sampler.start()
    except RuntimeError:  # no more threads
        me.sampler = None


def sample() -> None:
    """Where the main thread is, and the user's code in other threads, up to 100 times a second.

    Where a sample costs more, fewer are taken: SAMPLING of the time goes to them.
    """
    mine = threading.get_ident()
    written = last = now()
    own, taken = time.thread_time(), 0
    draw, pause = 1, 0.01
    usual = sys.getswitchinterval()
    while not me.end.is_set():
        time.sleep(pause * (0.7 + 0.6 * draw / 65537))
        draw = draw * 75 % 65537
        if len(_collections) > 40_000:  # no steps any more
            _collections.clear()
        if now() - written > 5:
            report()
            written = now()
        if not WATCH:
            continue
        frames = sys._current_frames()
        frames.pop(mine, None)
        frame = frames.pop(me.main or 0, None)
        # Python lines give the lock away after 5 ms: shorter ones would never be seen. Several
        # threads of the program's own keep what they have.
        sys.setswitchinterval(usual if frames else min(usual, 2e-4))
        if frame is None or len(me.chains) > ENOUGH:
            continue
        stack = me.stack
        part = stack[-1][0] if stack else "rest"
        inside = stack[0][0] if stack else "rest"
        # What keeps the GIL, such as a collection, is seen once, at its end: it weighs as it took.
        begin, last = last, now()
        weight = max(1, round((last - begin) * 100))
        me.samples += weight
        me.chains[(*chain(frame), "eval" if me.evaluating else part, inside)] += weight
        for other in frames.values():
            if users(other) is not None:
                me.threads[(*chain(other), "", "")] += weight
        taken += 1
        me.notes["sampling"] = time.thread_time() - own
        pause = min(0.1, max(0.01, me.notes["sampling"] / taken / SAMPLING))


def leave() -> None:
    """No thread of ours may live into the end of the interpreter: there it ends the process."""
    me.end.set()
    if me.sampler is not None and me.sampler is not threading.current_thread():
        me.sampler.join(30)  # it may be writing its report
    report()


def rank() -> int:
    found = sys.modules.get("torch.distributed")
    try:
        if found is not None and found.is_available() and found.is_initialized():
            me.notes["world"] = found.get_world_size()
            return int(found.get_rank())
    except Exception:
        pass
    names = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "HOROVOD_RANK")
    return next((int(os.environ[name]) for name in names if os.environ.get(name)), 0)


def report() -> None:
    """Write what was seen so far; a process that saw no step and no line writes nothing."""
    if not me.marks and not me.chains:
        return
    path = os.path.join(CONFIG["out"], f"p{os.getpid()}.json")
    try:
        most = me.chains.most_common(400)
        content = {
            "rank": rank(), "born": me.born, "marks": me.marks, "cpu": me.cpu,
            "delay": me.delay, "epochs": me.epochs, "window": me.window,
            "count": me.count, "spans": me.spans,
            "chains": [[*key, times] for key, times in most], "samples": me.samples,
            "threads": [[*key, times] for key, times in me.threads.most_common(50)],
            "essential": sorted(me.essential), "sites": me.sites, "notes": me.notes,
            "batches": me.batches, "inputs": me.inputs, "shapes": me.shapes,
            "weights": me.weights, "switches": me.switches, "own": me.own,
            "worker": me.notes.get("worker", False),
        }  # fmt: skip
        with OPEN(path + ".draft", "w", encoding="utf-8") as file:
            json.dump(content, file, default=str)
        os.replace(path + ".draft", path)
    except Exception:  # a full disk; a list that grew while it was written
        pass


def digest(values: Any) -> int:
    """A checksum of the first numbers of a batch; the same in every process."""
    return zlib.crc32(repr(values).encode())


def _in_child() -> None:
    me.__init__()  # type: ignore[misc]
    _collections.clear()
    me.main = threading.get_ident()


def watch_worker() -> None:
    """In a loader's worker, a forked process that takes no step: sample it all the same."""
    if WATCH and me.sampler is None:
        me.notes["worker"] = True
        _start_sampler()


# Pairs of times, two for the start of each collection and two for its end.
_collections: dict[float, float] = {}


def _watch_collections() -> None:
    """Note when collections begin and end, by functions written in C alone.

    An exception in a callback of `gc` is printed and forgotten, so a Python function here would
    lose a Ctrl-C that arrives during a collection.
    """
    clock = [iter(time.perf_counter, None) for _ in range(2)]
    noted = map(_collections.setdefault, *clock)
    gc.callbacks.append(functools.partial(min, key=functools.partial(next, noted)))


def _collected() -> None:
    """Add up the collections since the last step."""
    if _collections and len(_collections) % 4 == 0:
        times = [*_collections]
        _collections.clear()
        me.total["gc"] += sum(times[2::4]) - sum(times[1::4])  # type: ignore[assignment]


def _asked_collections() -> None:
    real = gc.collect

    def collect(*args: Any, **options: Any) -> int:
        if "gc" in me.off:
            return 0
        me.count["gc.collect"] += 1
        me.sites.setdefault("gc", line())
        with InPart("gc"):
            found = real(*args, **options)
        _collections.clear()
        return found

    gc.collect = collect
    was: list[bool] = []  # as the program has it

    def switch() -> None:
        was[:] = was or [gc.isenabled()]
        (gc.enable if was[0] and "gc" not in me.off else gc.disable)()

    if "gc" in ASKED:
        switched.append(switch)


def _exit_at_once() -> None:
    """Write the report of a process that ends by `os._exit`, as forked workers do."""
    real = os._exit

    @functools.wraps(real)
    def leave_and_exit(status: int) -> None:
        try:
            leave()
        finally:
            real(status)

    os._exit = leave_and_exit  # type: ignore[assignment]


os.register_at_fork(after_in_child=_in_child)
atexit.register(leave)
_asked_collections()
_exit_at_once()
