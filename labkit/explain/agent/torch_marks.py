"""Marks in PyTorch, and what can be changed in a PyTorch program while it runs."""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

from labkit_agent import arithmetic, marks
from labkit_agent.marks import ASKED, VALUES, WATCH, InPart, essential, line, me, note, wrap

KEPT = 4  # batches that stand in for all others


def torch(torch: Any) -> None:
    importlib.import_module("torch.utils.data")  # torch imports it anyway
    _threads(torch)
    _steps(torch)
    _modules(torch)
    _loaders(torch)
    _formats(torch)
    if torch.distributed.is_available():
        _ddp(torch, _collectives(torch))
    for name in ("item", "tolist", "numpy"):
        wrap(torch.Tensor, name, "sync")
    wrap(torch, "save", "save", marks.nothing)
    _gpu(torch)
    _compile(torch)


def tensors(value: Any) -> list[Any]:
    if hasattr(value, "detach"):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in tensors(item)]
    return []


def change(value: Any, to: Callable[[Any], Any]) -> Any:
    """The same nest of tensors, each of them changed."""
    if hasattr(value, "detach"):
        return to(value)
    if isinstance(value, dict):
        return type(value)((k, change(v, to)) for k, v in value.items())
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(change(item, to) for item in value)
    return value


def checksum(value: Any) -> int:
    """Of numbers from all over a batch, weighted by their places: microseconds, however large."""
    torch, found = sys.modules["torch"], []
    read = getattr(torch.Tensor.item, "__wrapped__", torch.Tensor.item)  # no part of a step
    for one in tensors(value)[:3]:
        if one.layout is not torch.strided or one.is_nested or one.is_complex():
            continue
        flat = one.detach().reshape(-1)
        places, weights = _places(flat.numel())
        some = flat[places.to(flat.device)].to(torch.float64).cpu()
        found.append((tuple(one.shape), read(some.dot(weights))))
    return int(marks.digest(found))


@functools.lru_cache(maxsize=64)
def _places(count: int) -> tuple[Any, Any]:
    """Up to 512 places, spread by the golden ratio: a stride would meet the same pixel each time.

    The corner of an image is black in all of them.
    """
    torch = sys.modules["torch"]
    number = torch.arange(min(512, count), dtype=torch.float64)
    places = (number * 0.6180339887498949 % 1 * count).to(torch.int64)
    return places, torch.cos(number)


def _threads(torch: Any) -> None:
    real = torch.set_num_threads

    def set_num_threads(count: int) -> None:
        note("set_threads", count)
        real(VALUES["threads"] if "threads" in marks.ALWAYS else count)

    torch.set_num_threads = set_num_threads
    if "threads" in marks.ALWAYS:
        real(VALUES["threads"])


# ---- steps ---------------------------------------------------------------------------------------


def _steps(torch: Any) -> None:
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    first: list[int] = []
    real_init = torch.optim.Optimizer.__init__

    @functools.wraps(real_init)
    def init(self: Any, *args: Any, **options: Any) -> None:
        real_init(self, *args, **options)
        trained.update(id(p) for group in self.param_groups for p in group["params"])
        me.sites.setdefault("trained", line())

    torch.optim.Optimizer.__init__ = init

    def before(optimizer: Any, *_: Any) -> None:
        essential()
        if threading.get_ident() == me.main:
            me.stack.append(["optimizer", marks.now(), 0.0])

    def after(optimizer: Any, *_: Any) -> None:
        if me.stack and me.stack[-1][0] == "optimizer":
            marks.close()
        first[:] = first or [id(optimizer)]
        if first[0] != id(optimizer):
            return
        me.evaluating = False
        if WATCH:
            _of_optimizer(torch, optimizer)
        if len(me.marks.get("optimizer", ())) == IDLE_AFTER and (WATCH or "frozen" in ASKED):
            _find_idle()
        me.backwards = 0
        if marks.CONFIG.get("count"):
            arithmetic.count(torch)
        marks.step("optimizer")

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    real = torch.Tensor.backward

    def backward(self: Any, *args: Any, **options: Any) -> Any:
        essential()
        me.evaluating = False
        if WATCH and len(me.marks.get("backward", ())) < 40:
            me.sites.setdefault("backward", line())
            me.notes.setdefault("loss", _scale_of(self))
        with InPart("backward"):
            out = real(self, *args, **options)
        me.backwards += 1
        marks.step("backward")
        return out

    torch.Tensor.backward = backward


def _of_optimizer(torch: Any, optimizer: Any) -> None:
    """What the first steps tell about the model: its size, weights by rank, scale of gradients."""
    n = len(me.marks.get("optimizer", ())) + 1
    counts = me.notes.setdefault("backwards", [])
    if len(counts) < 50:
        counts.append(me.backwards)
    if n > 20:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if n == 1:
        me.notes["parameters"] = sum(p.numel() for p in parameters)
        me.notes["bytes"] = sum(p.numel() * p.element_size() for p in parameters)
        me.notes["float64"] = any(p.dtype == torch.float64 for p in parameters)
        me.notes["threads"] = torch.get_num_threads()
        decays = any(group.get("weight_decay") for group in optimizer.param_groups)
        me.notes["takes rows"] = type(optimizer).__name__ in ("SGD", "Adagrad") and not decays
        me.notes["sparse"] = any(p.grad is not None and p.grad.is_sparse for p in parameters)
    if n in (1, 2, 5, 20) and marks.ranks() > 1:
        whole = parameters[:40]
        if not any(hasattr(p, "placements") for p in whole):
            with torch.no_grad():
                me.weights[str(n)] = [float(p.double().abs().sum()) for p in whole]


IDLE_AFTER = 2  # steps
trained: set[int] = set()  # weights that an optimizer holds
models: list[Any] = []  # what the training calls, outermost
idle: list[Any] = []  # weights of these with a gradient that no optimizer reads


def _find_idle() -> None:
    weights = {id(p): p for model in models for p in model.parameters()}
    idle[:] = [p for key, p in weights.items() if p.grad is not None and key not in trained]
    named = sum("requires_grad" in m.__dict__ for model in models for m in model.modules())
    if not idle:
        return
    me.notes["idle"] = sum(p.numel() for p in idle)
    me.notes["all weights"] = sum(p.numel() for p in weights.values())
    me.notes["requires_grad of modules"] = named


def _freeze() -> None:
    for one in idle:
        one.requires_grad_("frozen" not in me.off)
        one.grad = None


if "frozen" in ASKED:
    marks.switched.append(_freeze)


def _scale_of(loss: Any) -> dict[str, Any]:
    """By what the loss was divided last, and whether it is a mean over examples."""
    node, factor = loss.grad_fn, 1.0
    for _ in range(6):
        name = node.name() if node is not None else ""
        if name[:3] not in ("Div", "Mul"):
            break
        for side in ("_saved_other", "_saved_self"):
            other = getattr(node, side, None)
            if other is not None and other.numel() == 1:
                factor *= float(other) if name[:3] == "Mul" else 1 / float(other)
        node = next((one for one, _ in node.next_functions if one is not None), None)
    mean = name.startswith(
        ("Mean", "NllLoss", "MseLoss", "CrossEntropy", "BinaryCross", "SmoothL1")
    )
    return {"factor": factor, "mean": mean, "of": name}


def _modules(torch: Any) -> None:
    module = torch.nn.Module
    real, train = module.__call__, module.train
    inside = threading.local()

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if getattr(inside, "module", False) or threading.get_ident() != me.main:
            return real(self, *args, **options)
        learning = torch.is_grad_enabled() and self.training
        if learning:
            me.evaluating = False
            essential()
            if len(models) < 4 and all(self is not one for one in models):
                models.append(self)
            if WATCH and len(me.inputs) < 60 and tensors(args):
                me.inputs.append(checksum([*args, *options.values()]))
                if len(me.batches) == 0:
                    me.shapes.append(list(tensors(args)[0].shape))
        elif me.marks and not torch.is_grad_enabled():
            me.evaluating = True
        inside.module = True
        try:
            with InPart("forward" if learning else "eval"):
                return real(self, *args, **options)
        finally:
            inside.module = False

    def set_mode(self: Any, mode: bool = True) -> Any:
        if not getattr(inside, "module", False):
            me.evaluating = bool(me.marks) and not mode
        return train(self, mode)

    module.__call__ = call
    module.train = set_mode


# ---- input ---------------------------------------------------------------------------------------


def _loaders(torch: Any) -> None:
    data = torch.utils.data
    loader = data.DataLoader
    real_init, real_iter = loader.__init__, loader.__iter__
    made = itertools.count()

    def init(self: Any, dataset: Any, batch_size: Any = 1, *args: Any, **options: Any) -> None:
        key = f"loader{next(made)}"
        if "batch" in marks.ALWAYS and batch_size:
            batch_size = batch_size * VALUES["batch"]
        if "workers" in marks.ALWAYS and len(args) < 4:
            options["num_workers"] = VALUES["workers"]
        if not options.get("num_workers") and "workers" in marks.ALWAYS:
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
                options.pop(name, None)
        if options.get("num_workers") and {"workers", "persistent"} & marks.ALWAYS:
            options["persistent_workers"] = True
        real_init(self, dataset, batch_size, *args, **options)
        self._labkit_key = key
        if WATCH:
            found = {"batch": self.batch_size, "workers": self.num_workers}
            note(key, {**found, "persistent": self.persistent_workers})

    loader.__init__ = init

    def iterate(self: Any) -> Any:
        training = not me.evaluating and torch.is_grad_enabled()
        if training:
            me.epochs.append(len(me.marks.get(me.leading, ())))
            me.notes.setdefault("loader", getattr(self, "_labkit_key", ""))
            if "input" in marks.ALWAYS:
                return _Again(self, real_iter)
        starts = self.num_workers and not (self.persistent_workers and self._iterator)
        with InPart("workers" if starts else "input"):
            out = real_iter(self)
        out._labkit_epoch = len(me.epochs)
        return out

    loader.__iter__ = iterate
    base = data.dataloader._BaseDataLoaderIter
    real_next = base.__next__
    kept: list[Any] = []

    def fetch(self: Any) -> Any:
        training = not me.evaluating and torch.is_grad_enabled()
        if training:
            essential()
            if "input" in me.off and len(kept) >= KEPT:
                kept.append(kept.pop(0))
                return kept[0]
        with InPart("input" if training else "eval"):
            batch = real_next(self)
        if training:
            if WATCH and len(me.batches) < 400:
                found = tensors(batch)
                me.shapes.append(list(found[0].shape) if found else [])
                me.batches.append([getattr(self, "_labkit_epoch", 0), checksum(batch)])
            if "input" in ASKED and len(kept) < KEPT:
                kept.append(batch)
        return batch

    base.__next__ = fetch
    real_worker = data._utils.worker._worker_loop

    @functools.wraps(real_worker)
    def worker(*args: Any, **options: Any) -> Any:
        marks.watch_worker()
        return real_worker(*args, **options)

    data._utils.worker._worker_loop = worker
    sampler = data.distributed.DistributedSampler
    sampler_init, sampler_iter = sampler.__init__, sampler.__iter__

    def made_sampler(self: Any, *args: Any, **options: Any) -> None:
        sampler_init(self, *args, **options)
        me.sites.setdefault("sampler", line())

    def order(self: Any) -> Any:
        if WATCH and self.shuffle:
            me.notes.setdefault("sampler epochs", []).append(self.epoch)
        return sampler_iter(self)

    sampler.__init__, sampler.__iter__ = made_sampler, order


class _Again:
    """An epoch of the same few batches."""

    def __init__(self, loader: Any, real_iter: Any) -> None:
        self.kept = loader.__dict__.setdefault("_labkit_kept", [])
        if not self.kept:
            source = real_iter(loader)
            self.kept.extend(itertools.islice(source, KEPT))
            del source
            loader._iterator = None
        try:
            self.left = len(loader)
        except TypeError:
            self.left = VALUES.get("epoch") or 1 << 60

    def __iter__(self) -> _Again:
        return self

    def __next__(self) -> Any:
        if self.left <= 0 or not self.kept:
            raise StopIteration
        self.left -= 1
        return self.kept[self.left % len(self.kept)]


# ---- formats of numbers and gradients ------------------------------------------------------------


def _formats(torch: Any) -> None:
    embedding = torch.nn.Embedding
    bag = torch.nn.EmbeddingBag
    for owner in (embedding, bag):

        def init(self: Any, *args: Any, real: Any = owner.__init__, **options: Any) -> None:
            if options.get("sparse"):
                note("sparse embedding", True)
                options["sparse"] = "dense" not in marks.ALWAYS
            elif "rows" in marks.ALWAYS:
                options["sparse"] = True
            real(self, *args, **options)
            size = self.num_embeddings * self.embedding_dim
            if size > me.notes.get("embedding", 1_000_000):
                me.notes["embedding"] = size
                me.sites["embedding"] = line()

        owner.__init__ = init
    if "float32" not in marks.ALWAYS:
        return

    def single(one: Any) -> Any:
        return one.float() if one.dtype == torch.float64 else one

    real = torch.set_default_dtype
    torch.set_default_dtype = lambda kind: None if kind is torch.float64 else real(kind)
    torch.nn.Module.double = lambda self: self
    torch.Tensor.double = torch.Tensor.float
    to, module_to = torch.Tensor.to, torch.nn.Module.to

    def narrow(args: Any, options: Any) -> tuple[Any, Any]:
        swap = {torch.float64: torch.float32}
        pick = [swap.get(v, v) if isinstance(v, torch.dtype) else v for v in args]
        named = {k: swap.get(v, v) if k == "dtype" else v for k, v in options.items()}
        return tuple(pick), named

    def tensor_to(self: Any, *args: Any, **options: Any) -> Any:
        args, options = narrow(args, options)
        return to(self, *args, **options)

    def into(self: Any, *args: Any, **options: Any) -> Any:
        args, options = narrow(args, options)
        return module_to(self, *args, **options)

    torch.Tensor.to, torch.nn.Module.to = tensor_to, into
    names = "from_numpy tensor as_tensor randn rand zeros ones full arange linspace empty normal"
    for name in names.split():

        def convert(*args: Any, original: Any = getattr(torch, name), **options: Any) -> Any:
            args, options = narrow(args, options)
            return single(original(*args, **options))

        setattr(torch, name, convert)


def _gpu(torch: Any) -> None:
    if not torch.cuda.is_available():
        return
    wrap(torch.Tensor, "cuda", "copy")
    wrap(torch.cuda, "synchronize", "sync")
    # A block of steps ends when the device has done its work, or it would be the next one's.
    marks.switched.append(torch.cuda.synchronize)


def _compile(torch: Any) -> None:
    real = torch.compile

    @functools.wraps(real)
    def compile(*args: Any, **options: Any) -> Any:
        note("compile", True)
        if "dynamic" in marks.ALWAYS:
            options["dynamic"] = True
        return real(*args, **options)

    torch.compile = compile

    def graphs() -> int:
        found = sys.modules.get("torch._dynamo.utils")
        return int(found.counters["stats"]["unique_graphs"]) if found else 0

    me.notes["graphs"] = 0
    if WATCH:
        real_report = marks.report

        def report() -> None:
            me.notes["graphs"] = graphs()
            real_report()

        marks.report = report


# ---- communication -------------------------------------------------------------------------------


class _Done:
    """The handle of a collective that was left out."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


CALLS = [
    "all_reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "reduce_scatter",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "all_to_all",
    "all_to_all_single",
    "all_reduce_coalesced",
    "send",
    "recv",
]


def _collectives(torch: Any) -> Any:
    """Returns the all-reduce that is never left out."""
    dist = torch.distributed
    flat: dict[str, Any] = {}

    def left_out(name: str, args: Any, options: Any) -> bool:
        """Is this call one that a shorter way of communicating does without?"""
        if "comm" in me.off:
            return True
        if name != "all_reduce" or not me.marks:
            return False
        if "last" in me.off:  # only that of the last micro-step
            return bool(me.backwards < VALUES["micro"])
        if "fuse" in me.off:  # one call with all bytes in place of many
            flat["calls"] = flat.get("calls", 0) + 1
            if flat["calls"] % VALUES["calls"]:
                return True
            buffer = flat.get("buffer")
            if buffer is None:
                one = args[0] if args else options["tensor"]
                count = max(1, int(VALUES["bytes"]) // one.element_size())
                buffer = flat["buffer"] = one.new_zeros(count)
            flat["real"](buffer)
            return True
        return False

    flat["real"] = dist.all_reduce

    def hook(name: str, original: Any) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            if ASKED and left_out(name, args, options):
                if name == "all_gather":
                    for out in args[0]:
                        out.copy_(args[1])
                return _Done() if options.get("async_op") else None
            if WATCH and me.marks:
                me.count["dist." + name] += 1
                if name == "all_reduce" and me.count["dist." + name] < 5000:
                    one = args[0] if args else options["tensor"]
                    me.count["reduced bytes"] += one.numel() * one.element_size()
                me.sites.setdefault("dist." + name, line())
            with InPart("comm"):
                return original(*args, **options)

        return call

    for name in CALLS:
        if original := getattr(dist, name, None):
            setattr(dist, name, hook(name, original))
    for name in (
        "broadcast_object_list",
        "all_gather_object",
        "gather_object",
        "monitored_barrier",
    ):
        wrap(dist, name, "comm")
    return flat["real"]


def _ddp(torch: Any, all_reduce: Any) -> None:
    ddp = torch.nn.parallel.DistributedDataParallel
    real_init, real_forward, real_hook = ddp.__init__, ddp.forward, ddp.register_comm_hook

    def maybe(group, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations as strings
        if "comm" not in me.off:
            buffer = bucket.buffer().div_(torch.distributed.get_world_size())
            done = all_reduce(buffer, async_op=True).get_future()
            return done.then(lambda one: one.value()[0])
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def register(self: Any, *args: Any, **options: Any) -> Any:
        note("comm hook", True)
        return None if "comm" in ASKED else real_hook(self, *args, **options)

    def init(self: Any, *args: Any, **options: Any) -> None:
        plain = (bool, int, float)
        note("ddp", {k: v for k, v in options.items() if isinstance(v, plain)})
        if "used" in marks.ALWAYS:
            options["find_unused_parameters"] = False
        if "buckets" in marks.ALWAYS:
            options.pop("bucket_cap_mb", None)
        real_init(self, *args, **options)
        if "comm" in ASKED:
            real_hook(self, None, maybe)

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():
            if WATCH:
                kind = "synced" if self.require_backward_grad_sync else "unsynced"
                me.count[kind + " forward"] += 1
            if "last" in me.off:
                self.require_backward_grad_sync = me.backwards >= VALUES["micro"] - 1
            elif "last" in ASKED:
                self.require_backward_grad_sync = True
            if "even" in me.off:
                args = change(args, _even)
                options = change(options, _even)
        return real_forward(self, *args, **options)

    def _even(one: Any) -> Any:
        """As long as the mean batch, in the dimensions that differ between ranks."""
        for dim, size in ((int(key), size) for key, size in VALUES["shape"].items()):
            if dim < one.dim() and one.shape[dim] not in (0, size):
                one = one.index_select(dim, torch.arange(size) % one.shape[dim])
        return one

    ddp.__init__, ddp.forward, ddp.register_comm_hook = init, forward, register
