"""Ranks as threads of one process: torch.distributed without other processes, sockets or clocks.

`run(lambda world, rank: dist.all_reduce(torch.ones(1)), ranks=2)`

One rank runs at a time and hands over where it waits for another, so that every run is the same
run. What a collective writes is NaN until its handle is waited for. Imported in a rank alone.
"""

import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.testing._internal.distributed.multi_threaded_pg import (
    _install_threaded_pg,
    _uninstall_threaded_pg,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

MATMULS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.convolution_backward")
STUCK, DIFFERENT = "Nobody can go on", "The ranks call different collectives"
Parts = list[list[Any]]  # what each rank has given to a collective


class RankStopped(BaseException):
    """Ends a rank whose peers cannot go on."""


@dataclass
class GroupCall:
    """A call of the process group, on one rank."""

    what: str
    nbytes: int
    """That the rank gives."""
    in_backward: bool
    """It begins before the last gradient is there."""
    by_torch: bool = False
    """torch itself asked for its future, as DistributedDataParallel does."""
    waited: bool = False
    overlaps: bool = False
    """The backward pass has computed between its beginning and its end."""
    again: bool = False
    """A call before it with the same tensor was not waited for."""
    is_flag: bool = field(init=False)
    """Too few bytes for a gradient: with Join, DDP sends flags and never waits for them."""

    def __post_init__(self) -> None:
        self.is_flag = self.nbytes <= 16


def in_backward() -> bool:
    """Whether this thread is inside backward()."""
    return bool(torch._C._current_graph_task_id() != -1)


class RankWatch(TorchDispatchMode):  # type: ignore[misc]
    """What a rank does: its calls, bytes that are alive, products of the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[GroupCall] = []
        self.products = self.now = self.peak = 0
        self.marks: list[tuple[int, int]] = []
        self.alive: dict[int, int] = {}

    def mark(self) -> None:
        """A step ends: note the bytes that are alive, and the most since the last one."""
        self.marks.append((self.now, self.peak))
        self.peak = self.now

    def change(self, storage: int, nbytes: int, *, gone: bool = False) -> None:
        """A storage has so many bytes now."""
        self.now += nbytes - self.alive.pop(storage, 0)
        if not gone:
            self.alive[storage] = nbytes
        self.peak = max(self.peak, self.now)

    def __torch_dispatch__(self, call: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what is called, and note it."""
        result = call(*args, **(kwargs or {}))
        self.products += str(call).startswith(MATMULS) and in_backward()
        for leaf in tree_leaves((args, kwargs, result)):
            one = getattr(leaf, "_local_tensor", leaf)  # of a DTensor
            if type(one) in (torch.Tensor, torch.nn.Parameter):
                storage = one.untyped_storage()
                if storage._cdata not in self.alive:
                    weakref.finalize(storage, self.change, storage._cdata, 0, gone=True)
                self.change(storage._cdata, storage.nbytes())
        return result


@dataclass
class ThreadWorld:
    """Who may run, who waits for what, and what has been called."""

    size: int
    watches: list[RankWatch]
    turn: int = 0
    waiting: dict[int, tuple[Callable[[], bool], str]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    why: str = ""
    """Nobody can go on."""
    results: dict[int, Any] = field(default_factory=dict)
    faults: dict[int, BaseException] = field(default_factory=dict)
    meetings: dict[Any, Any] = field(default_factory=dict)
    lock: threading.Condition = field(default_factory=threading.Condition)

    def hand_over(self, rank: int) -> None:
        """Let the next rank run that can."""
        for other in ((rank + step) % self.size for step in range(1, self.size + 1)):
            if other not in self.done and self.waiting.get(other, (lambda: True, ""))[0]():
                self.turn = other
                break
        else:
            if len(self.done) < self.size and not self.why:
                waits = [f"rank {r} waits in {what}" for r, (_, what) in self.waiting.items()]
                ended = [f"rank {r} has ended" for r in self.done]
                self.why = f"{STUCK}: {', '.join(sorted(waits + ended))}."
        self.lock.notify_all()

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready`; the other ranks run until then."""
        with self.lock:
            if not ready() and not self.why:
                random = torch.get_rng_state()  # each rank draws numbers of its own
                self.waiting[rank] = ready, what
                self.hand_over(rank)
                self.lock.wait_for(lambda: self.why or (self.turn == rank and ready()))
                self.waiting.pop(rank, None)
                torch.set_rng_state(random)
            if self.why:
                raise RankStopped

    def be(self, rank: int, program: Callable[["ThreadWorld", int], Any], store: Any) -> None:
        """Be this rank, in its thread."""
        with self.lock:
            self.lock.wait_for(lambda: self.turn == rank or self.why)
        try:
            if not self.why:
                torch.manual_seed(rank)
                with self.watches[rank]:
                    given = {"rank": rank, "world_size": self.size, "store": store}
                    dist.init_process_group("ranks", **given)
                    self.results[rank] = program(self, rank)
        except RankStopped:
            pass
        except BaseException as fault:  # noqa: BLE001 (the judge says it)
            self.faults[rank] = fault
            self.why = self.why or f"Rank {rank} has failed."
        with self.lock:
            self.done.add(rank)
            self.hand_over(rank)


class PendingCall(dist.Work):  # type: ignore[misc]
    """What a call returns: `wait` writes the result."""

    def __init__(self, finish: Callable[[], Any], event: GroupCall, result: list[Any]) -> None:
        super().__init__()
        self.finish, self.event, self.tensors = finish, event, result

    def wait(self, _: Any = None) -> bool:
        """Wait for the others, and write the result."""
        self.finish()
        return True

    def get_future(self) -> Any:
        """What torch's C++ code asks for: it is done at once."""
        self.event.by_torch = True
        self.finish()
        future: Any = Future()
        future.set_result(self.tensors)
        return future


def reduced(parts: Iterable[Any], how: Any) -> Any:
    """In the order of the ranks: the same bits on all of them."""
    all_parts, op = torch.stack([*parts]), dist.ReduceOp
    ways = {"sum": op.SUM, "mean": op.AVG, "amax": op.MAX, "amin": op.MIN, "prod": op.PRODUCT}
    for way, one in ways.items():
        if how == one:
            return getattr(all_parts, way)(0)
    raise RuntimeError(f"Cannot use {how} with gloo")


def tensors_in(what: Any) -> list[Any]:
    """All tensors of nested lists."""
    return [one for one in tree_leaves(what) if isinstance(one, torch.Tensor)]


def blank(tensor: Any) -> None:
    """What cannot be taken for a result."""
    kind = tensor.dtype
    if kind.is_floating_point or kind.is_complex:
        tensor.detach().fill_(float("nan"))
    elif kind is not torch.bool:
        tensor.detach().fill_(torch.iinfo(kind).min)


class ThreadGroup(dist.ProcessGroup):  # type: ignore[misc]
    """The calls of a process group: each gives its inputs, meets the others, and writes outputs."""

    def __init__(self, world: ThreadWorld, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self.world, self.name, self.calls = world, options.group_id, 0
        self.me, self.n = options.group_rank, options.group_size
        ranks = list(options.global_ranks_in_group) or list(range(self.n))
        self.mine, self.watch = ranks[self.me], world.watches[ranks[self.me]]
        torch.autograd.set_multithreading_enabled(False)  # backward stays on the rank's thread

    def size(self) -> int:
        """How many ranks it has."""
        return int(self.n)

    def getBackendName(self) -> str:
        """Its backend's name."""
        return "ranks"

    @property
    def group_name(self) -> str:
        """Its name, which no other group has."""
        return str(self.name)

    def start(self, what: str, given: list[Any], written: list[Any]) -> GroupCall:
        """Note a call."""
        event = GroupCall(what, sum(one.nbytes for one in given), in_backward())
        used = {one.data_ptr() for one in (written or given) if one.numel()}
        flying = self.world.meetings.setdefault(("flying", self.mine), [])
        event.again = any(used & its and not one.waited for one, its in flying)
        if not event.is_flag:
            flying.append((event, used))
        self.watch.events.append(event)
        return event

    def end(self, event: GroupCall, products: int) -> bool:
        """Note that a call is waited for. False: it was before."""
        first, event.waited = not event.waited, True
        event.overlaps |= first and event.in_backward and self.watch.products > products
        return first

    def meet(self, what: str, outputs: Any, inputs: Any, make: Any, *same: Any) -> PendingCall:
        """make(parts, rank) says what a rank's outputs become; `same` must be so on all ranks."""
        self.calls += 1
        given, written, products = tensors_in(inputs), tensors_in(outputs), self.watch.products
        event = self.start(what, given, written)
        with _disable_current_modes():
            copies = [one.detach().clone() for one in given]
            for one in written:
                if not (what == "broadcast" and self.me == same[0]):
                    blank(one)
        parts = self.world.meetings.setdefault((self.name, self.calls), {})
        said = f"{what} of {sum(one.numel() for one in given)} elements" if given else what
        if what == "broadcast":
            said += f" from rank {same[0]}"
        parts[self.me] = copies, (what, *map(str, same)), said
        if len({like for _, like, _ in parts.values()}) > 1:
            calls = ", ".join(f"rank {rank} {words}" for rank, (*_, words) in sorted(parts.items()))
            self.world.why = self.world.why or f"{DIFFERENT}: {calls}."

        def finish() -> None:
            self.world.wait(self.mine, lambda: len(parts) == self.n, said)
            if self.end(event, products):
                with _disable_current_modes(), torch.no_grad():
                    made = tensors_in(make([parts[rank][0] for rank in range(self.n)], self.me))
                    for old, new in zip(written, made, strict=bool(made)):
                        old.copy_(new.view(old.shape))

        call = PendingCall(finish, event, written)
        if event.is_flag:  # C++ waits for a flag whose handle Python has let go
            self.world.meetings.setdefault("flags", []).append(call)
        return call

    def all_to_all_single(self, output: Any, given: Any, to: Any, of: Any, _: Any) -> PendingCall:
        def cut(whole: Any, sizes: Any) -> list[Any]:
            return list(whole.split(sizes) if sizes else whole.chunk(self.n))

        call: PendingCall = self.alltoall(cut(output, to), cut(given, of))
        return call

    def barrier(self, opts: Any = None) -> PendingCall:
        return self.meet("barrier", [], [], lambda *_: [])

    def send(self, tensors: Any, to: int, tag: int = 0) -> PendingCall:
        letters = self.world.meetings.setdefault((self.name, self.me, to, tag), [])
        event = self.start("send", tensors, [])
        with _disable_current_modes():  # buffered: torch's interleaved schedules need that
            letters.append(tensors[0].detach().clone())
        return PendingCall(partial(self.end, event, 0), event, [])

    def recv(self, tensors: Any, source: int, tag: int = 0) -> PendingCall:
        letters = self.world.meetings.setdefault((self.name, source, self.me, tag), [])
        asked = self.world.meetings.setdefault((self.name, source, self.me, tag, "asked"), [])
        asked.append(tensors)
        number, products = len(asked), self.watch.products
        event = self.start("recv", tensors, tensors)

        def finish() -> None:
            ready = lambda: len(letters) >= number
            self.world.wait(self.mine, ready, f"recv from rank {source}")
            if self.end(event, products):
                with _disable_current_modes(), torch.no_grad():
                    tensors[0].copy_(letters[number - 1].view(tensors[0].shape))

        return PendingCall(finish, event, tensors)


def collective(what: str, made: Callable[[Parts, int, Any], Any]) -> Callable[..., PendingCall]:
    """A method of a group: made(parts, rank, options) are the outputs of a rank, in order."""

    def call(self: ThreadGroup, outputs: Any, inputs: Any = None, opts: Any = None) -> PendingCall:
        if hasattr(inputs, "timeout") or inputs is None:  # it works in place
            inputs, opts = outputs, inputs
        same = [getattr(opts, "rootRank", "")]
        if what not in ("gather", "scatter", "all_to_all"):  # which may give what the others do not
            same += [one.shape for one in tensors_in(inputs)]
        make = lambda parts, me: made(parts, me, opts)
        return self.meet(what, outputs, inputs, make, *same)

    return call


def one_by_one(call: Callable[..., PendingCall]) -> Callable[..., PendingCall]:
    """A method for lists of tensors: what torch joins into one call is several here."""

    def calls(_: Any, outputs: Any, inputs: Any, opts: Any = None) -> PendingCall:
        pending = [call(_, *both, opts) for both in zip(outputs, inputs, strict=True)]
        for one in pending[:-1]:
            one.wait()
        return pending[-1]

    return calls


def pieces(parts: Parts, me: int) -> list[Any]:
    """A rank's piece of each rank's only tensor."""
    return [one.flatten().chunk(len(parts))[me] for (one,) in parts]


SUM = SimpleNamespace(reduceOp=dist.ReduceOp.SUM)
METHODS: dict[str, tuple[str, Callable[[Parts, int, Any], Any]]] = {
    "allreduce": ("all_reduce", lambda parts, _, how: [
        reduced(each, (how or SUM).reduceOp) for each in zip(*parts, strict=True)]),
    "broadcast": ("broadcast", lambda parts, _, how: parts[how.rootRank]),
    "reduce": ("reduce", lambda parts, me, how: reduced(
        [its[0] for its in parts], how.reduceOp) if me == how.rootRank else parts[me]),
    "allgather": ("all_gather", lambda parts, *_: parts),
    "all_gather_single": ("all_gather", lambda parts, *_: torch.cat(
        [one.flatten() for (one,) in parts])),
    "reduce_scatter": ("reduce_scatter", lambda parts, me, how:
        reduced([its[me] for its in parts], how.reduceOp)),
    "reduce_scatter_single": ("reduce_scatter", lambda parts, me, how:
        reduced(pieces(parts, me), how.reduceOp)),
    "gather": ("gather", lambda parts, me, how: parts if me == how.rootRank else []),
    "scatter": ("scatter", lambda parts, me, how: parts[how.rootRank][me]),
    "alltoall": ("all_to_all", lambda parts, me, _: [its[me] for its in parts]),
}  # fmt: skip
for method, (what, made) in METHODS.items():
    setattr(ThreadGroup, method, collective(what, made))
    if method.endswith("_single"):
        setattr(ThreadGroup, f"{method}_coalesced", one_by_one(getattr(ThreadGroup, method)))
ThreadGroup.allreduce_coalesced = ThreadGroup.allreduce


_running: list[ThreadWorld] = []
dist.Backend.register_backend(
    "ranks",
    lambda options, _: ThreadGroup(_running[-1], options),
    extended_api=True,
    devices=["cpu"],
)
_resize = torch.UntypedStorage.resize_


def run(program: Callable[[ThreadWorld, int], Any], ranks: int) -> ThreadWorld:
    """Call program(world, rank) on so many threads."""
    world, store = ThreadWorld(ranks, [RankWatch() for _ in range(ranks)]), dist.HashStore()

    def resize(storage: Any, size: int) -> Any:  # by which FSDP frees, past the dispatcher
        result = _resize(storage, size)
        for watch in world.watches:
            if storage._cdata in watch.alive:
                watch.change(storage._cdata, storage.nbytes())
        return result

    torch.set_num_threads(1)
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    _install_threaded_pg()
    _running.append(world)
    torch.UntypedStorage.resize_ = resize
    threads = [
        threading.Thread(target=world.be, args=(rank, program, store), daemon=True)
        for rank in range(ranks)
    ]
    try:
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        torch.UntypedStorage.resize_ = _resize
        _running.pop()
        _uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
    return world
