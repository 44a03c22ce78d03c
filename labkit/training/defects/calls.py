"""What calls mean: of the program's own functions, and of the libraries that it uses."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.training.defects import data_calls, keras_calls
from labkit.training.defects.functions import Managed, invoke
from labkit.training.defects.story import Region
from labkit.training.defects.values import (
    Array,
    Clock,
    Const,
    Dotted,
    Function,
    Instance,
    Klass,
    Layer,
    Method,
    Model,
    Number,
    Output,
    Partial,
    Pipeline,
    Scope,
    Seq,
    Strategy,
    Table,
    Text,
    Unknown,
)

__all__ = ["CPU_CLOCKS", "JUMPING_CLOCKS", "call", "data_set_part", "items_of"]

CPU_CLOCKS = frozenset(
    {"time.process_time", "time.process_time_ns", "time.thread_time", "time.thread_time_ns"}
    | {"time.clock", "resource.getrusage", "os.times"}
)
JUMPING_CLOCKS = frozenset(
    {"time.time", "time.time_ns", "datetime.datetime.now", "datetime.datetime.utcnow"}
    | {"datetime.datetime.today", "tensorflow.timestamp"}
)
_STEADY_CLOCKS = frozenset(
    {"time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.monotonic_ns"}
    | {"timeit.default_timer"}
)
_TIMERS = frozenset(
    {"labkit.compare", "labkit.measure", "labkit.timing.compare", "labkit.timing.measure"}
    | {
        "labkit.timing.rounds.compare",
        "labkit.timing.rounds.measure",
        "timeit.timeit",
        "timeit.repeat",
    }
)


def call(
    reader: Any,
    node: ast.Call,
    called: Any,
    owner: Any,
    name: str,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """What a call gives, and what it adds to the story."""
    if isinstance(called, Partial):
        called, args = called.function, (*called.args, *args)
    if isinstance(called, Function):
        if called.manager:
            return Managed(called, args, keywords)
        bound = owner if isinstance(owner, Instance) else None
        return invoke(reader, called, args, keywords, owner=bound, node=node)
    if isinstance(called, Klass):
        return _instance(reader, node, called, args, keywords)
    if isinstance(called, Dotted):
        return _known(reader, node, called, args, keywords)
    if isinstance(called, Method):
        owner, name = called.owner, called.name
    if isinstance(called, (Layer, Model)):
        gives = called.gives
        return Output(Layer("call", gives))
    if owner is not None:
        return _method(reader, node, owner, name, args, keywords)
    if isinstance(called, Unknown):
        return _unknown(reader, node, called, args, keywords)
    return Unknown()


def items_of(value: Any) -> list[Any] | None:
    """The items of a short sequence that the program writes out, None if they are not known."""
    if isinstance(value, Table):
        return [key for key, _ in value.items]
    if isinstance(value, Seq) and 0 < len(value.items) <= 8:
        return list(value.items)
    return None


def data_set_part(owner: Seq, name: str) -> Any:
    """x_train and its like, of one of labkit's data sets."""
    parts = ("x_train", "y_train", "x_test", "y_test")
    if name in parts and len(owner.items) == 2 and all(isinstance(p, Seq) for p in owner.items):
        place = parts.index(name)
        return owner.items[place // 2].items[place % 2]
    return Method(owner, name) if name == "append" else Unknown(name)


def _instance(
    reader: Any, node: ast.Call, klass: Klass, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    if any(
        isinstance(base, Dotted) and base.last in ("Model", "Sequential") for base in klass.bases
    ):
        return keras_calls.new_model(reader, node, None)
    made = Instance(klass)
    begin = klass.members.get("__init__")
    if isinstance(begin, Function):
        invoke(reader, begin, args, keywords, owner=made)
    return made


def _known(
    reader: Any, node: ast.Call, called: Dotted, args: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """A call of something imported."""
    path = called.path
    if path in CPU_CLOCKS or path in JUMPING_CLOCKS or path in _STEADY_CLOCKS:
        read = Clock(path, reader.tick(), reader.spot(node), reader.loops)
        reader.story.clocks.append(read)
        return read
    if path in _TIMERS:
        return _timed(reader, node, path, args, keywords)
    if path == "labkit.replicas" or path.endswith("hardware.replicas.replicas"):
        return Unknown("labkit.replicas")
    if path.startswith("labkit.datasets.") or called.last == "load_data":
        return data_calls.data_set(reader, node)
    if called.root == "functools" and called.last == "partial" and args:
        return Partial(args[0], tuple(args[1:]), keywords)
    if called.root == "functools":
        return called
    if path == "tensorflow.function":
        return _traced(called, args)
    if called.root == "tensorflow" and ".distribute" in path and called.last.endswith("Strategy"):
        made = Strategy(1 if called.last == "OneDeviceStrategy" else None, reader.spot(node))
        reader.story.strategies.append(made)
        return made
    if called.last in ("list_physical_devices", "list_logical_devices", "get_visible_devices"):
        return Unknown("devices")
    if "tensorflow.data" in path or called.last == "image_dataset_from_directory":
        return data_calls.source(reader, node, called.last, args)
    array = data_calls.array_call(reader, node, called, args, keywords)
    if array is not None:
        return array
    return keras_calls.known(reader, node, called, args, keywords)


def _traced(called: Dotted, args: Sequence[Any]) -> Any:
    if args and isinstance(args[0], Function):
        args[0].traced = True
    return args[0] if args else called


def _timed(
    reader: Any, node: ast.Call, path: str, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    works: list[Any] = []
    for one in (*args, *keywords.values()):
        works += [value for _, value in one.items] if isinstance(one, Table) else [one]
    for work in works:
        if isinstance(work, (Function, Partial, Method)):
            start = reader.tick()
            call(reader, node, work, None, "", (), {})
            spot = reader.spot(node)
            reader.story.regions.append(
                Region(path, start, reader.tick(), spot, spot, reader.loops + 1, repeats=True)
            )
    return Unknown()


def _method(
    reader: Any,
    node: ast.Call,
    owner: Any,
    name: str,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """A call of owner.name"""
    if isinstance(owner, Strategy) or (
        isinstance(owner, Unknown) and name in ("scope", "strategy")
    ):
        return _of_strategy(reader, node, owner, name, args, keywords)
    if isinstance(owner, Unknown) and name in ("fit", "compile", "train_on_batch"):
        owner = Model(reader.spot(node), built_here=False, loops=reader.loops)
        if isinstance(node.func, ast.Attribute):
            reader.assign(node.func.value, owner, node)
    if isinstance(owner, Model):
        return keras_calls.of_model(reader, node, owner, name, args, keywords)
    if isinstance(owner, Pipeline) and name == "apply":
        made = call(reader, node, args[0], None, "", (owner,), {}) if args else None
        return made if isinstance(made, Pipeline) else Unknown()
    if isinstance(owner, Pipeline):
        return data_calls.of_pipeline(reader, node, owner, name, args, keywords)
    if name == "astype":
        dtype = keywords.get("dtype", args[0] if args else None)
        return data_calls.cast(reader, node, owner, data_calls.dtype_of(dtype))
    if isinstance(owner, Array):
        return owner if name in (*data_calls.AS_IT_IS, "numpy", "flatten") else Unknown()
    if isinstance(owner, Table) and name in ("items", "values"):
        pairs = [Seq(pair) if name == "items" else pair[1] for pair in owner.items]
        return Seq(tuple(pairs))
    if (
        isinstance(owner, Seq)
        and name == "append"
        and args
        and isinstance(node.func, ast.Attribute)
    ):
        # Inside a loop that is followed once, more may come than can be seen.
        grown = Unknown() if reader.loops else Seq((*owner.items, args[0]))
        reader.assign(node.func.value, grown, node)
        return Const(None)
    return Unknown()


def _of_strategy(
    reader: Any,
    node: ast.Call,
    owner: Any,
    name: str,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    if name == "strategy":
        made = Strategy(None, reader.spot(node))
        if not (isinstance(owner, Unknown) and owner.name == "labkit.replicas"):
            made.made = False
        else:
            reader.story.strategies.append(made)
        return made
    if isinstance(owner, Unknown):
        owner = Strategy(None, reader.spot(node), made=False)
        if isinstance(node.func, ast.Attribute):
            reader.assign(node.func.value, owner, node)
    if name == "scope":
        return Scope(owner)
    if name == "run":
        reader.story.own_loops = True
        work = args[0] if args else keywords.get("fn")
        given = keywords.get("args", args[1] if len(args) > 1 else None)
        inner = given.items if isinstance(given, Seq) else ()
        return call(reader, node, work, None, "", inner, {})
    if name == "experimental_distribute_dataset":
        return args[0] if args else Unknown()
    if args and isinstance(args[0], Function):
        # distribute_datasets_from_function: there the batch is that of one replica, rightly.
        reader.story.own_loops = True
        invoke(reader, args[0], (), {})
    return Unknown()


def _unknown(
    reader: Any, node: ast.Call, called: Unknown, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """A call of a builtin, or of something that is not in these cells."""
    if called.name == "len" and args and args[0] == Unknown("devices"):
        return Number(1, ("replicas",))
    if called.name in ("int", "round", "float", "str", "abs") and args:
        return args[0] if isinstance(args[0], (Number, Clock)) else Unknown()
    if called.name in ("list", "tuple") and args:
        return args[0] if isinstance(args[0], Seq) else Unknown()
    if called.name == "dict" and keywords:
        return Table(tuple((Text(key), value) for key, value in keywords.items()))
    listed = [items_of(one) for one in args]
    if called.name == "enumerate" and listed and listed[0]:
        return Seq(tuple(Seq((Number(k), one)) for k, one in enumerate(listed[0])))
    if called.name == "zip" and listed and all(listed):
        return Seq(
            tuple(Seq(tuple(row)) for row in zip(*[one or [] for one in listed], strict=False))
        )
    if called.name == "saved model":
        why = (
            "what tf.saved_model.load gives back cannot be called: this line stops with a TypeError"
        )
        reader.story.breaks.append((reader.spot(node), why))
    return Unknown()
