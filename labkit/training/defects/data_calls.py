"""What calls mean that make, change or feed data: NumPy, tf.data, Keras' data sets."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.training.defects.arithmetic import double, scaled
from labkit.training.defects.functions import invoke
from labkit.training.defects.story import Work
from labkit.training.defects.values import (
    Array,
    Dotted,
    Function,
    Number,
    Pipeline,
    Seq,
    Text,
    Unknown,
)

__all__ = ["AS_IT_IS", "array_call", "cast", "data_set", "dtype_of", "of_pipeline", "source"]

AS_IT_IS = frozenset(
    {"reshape", "expand_dims", "ascontiguousarray", "squeeze", "copy", "stack", "concatenate"}
    | {"transpose", "ravel", "take"}
)
CASTS = frozenset({"asarray", "array", "cast", "constant", "convert_to_tensor", "saturate_cast"})


def data_set(reader: Any, node: ast.Call) -> Seq:
    """(x_train, y_train), (x_test, y_test), as Keras and labkit give them."""
    reader.story.work.append(Work(reader.tick(), reader.spot(node), "preparation"))
    return Seq(tuple(Seq((Array(dtype="bytes"), Array(one_hot=False))) for _ in range(2)))


def source(reader: Any, node: ast.Call, name: str, args: Sequence[Any]) -> Any:
    """The beginning of a tf.data pipeline."""
    if name in ("AUTOTUNE", "Options"):
        return Unknown()
    labels = None
    whole = name in ("from_tensor_slices", "from_tensors", "from_generator", "range")
    if args:
        parts = args[0].items if isinstance(args[0], Seq) else (args[0],)
        for part in parts:
            if isinstance(part, Array):
                part.used = True
        if len(parts) == 2 and isinstance(parts[1], Array):
            labels = parts[1].one_hot
    if whole and name != "range":
        reader.story.work.append(Work(reader.tick(), reader.spot(node), "preparation"))
    return Pipeline(labels=labels, whole=whole)


def dtype_of(value: Any) -> str:
    """float32 and the like, however it is written."""
    if isinstance(value, Text):
        return value.value
    if isinstance(value, Dotted):
        return value.last
    if isinstance(value, Unknown):
        return {"float": "float64", "int": "int64"}.get(value.name, "")
    return ""


def cast(reader: Any, node: ast.AST, array: Any, dtype: str) -> Any:
    """The same images in another type."""
    if isinstance(array, Array):
        array.mended = array.mended or dtype not in ("float64", "double", "")
        if dtype in ("", array.dtype):
            return array
    elif isinstance(array, Number):
        return array if dtype == "float64" else Unknown()  # a NumPy number keeps float32
    elif not isinstance(array, Unknown):
        return array
    if dtype in ("float64", "double") and isinstance(array, Array):
        wide = double(reader, array, node)
        wide.asked = True
        return wide
    name, one_hot = array.name, getattr(array, "one_hot", None)
    return Array(name, dtype or "unknown", one_hot)


def array_call(
    reader: Any, node: ast.Call, called: Dotted, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """A function on arrays, None if it is none."""
    first = args[0] if args else keywords.get("x")
    if called.last in ("to_categorical", "one_hot"):
        if called.last == "to_categorical":
            reader.story.work.append(Work(reader.tick(), reader.spot(node), "preparation"))
            if "dtype" in keywords and called.root == "keras":
                why = "to_categorical has no dtype any more: this line stops with a TypeError"
                reader.story.breaks.append((reader.spot(node), why))
        return Array(one_hot=True)
    if called.path == "numpy.eye":
        return Unknown("numpy.eye")
    if called.last in ("float32", "float16", "float64") and args:
        return cast(reader, node, first, called.last)
    if called.last in CASTS and args:
        dtype = keywords.get("dtype", args[1] if len(args) > 1 else None)
        return cast(reader, node, first, dtype_of(dtype))
    if called.last in ("divide", "true_divide", "multiply") and len(args) > 1:
        return scaled(reader, first, args[1], called.last != "multiply", node)
    if called.last in AS_IT_IS and args:
        inner = first.items[0] if isinstance(first, Seq) and first.items else first
        return inner if isinstance(inner, Array) else None
    return None


def of_pipeline(
    reader: Any,
    node: ast.Call,
    owner: Pipeline,
    name: str,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """One more operation of a pipeline."""
    if name in ("as_numpy_iterator", "element_spec", "cardinality", "reduce", "save"):
        return Unknown()
    for one in args:
        if isinstance(one, Function):
            invoke(reader, one, (), {})
    first = args[0] if args else next(
        (keywords[key] for key in ("batch_size", "buffer_size") if key in keywords), None
    )  # fmt: skip
    made = owner.then(name, first, reader.spot(node))
    if name in ("map", "filter", "flat_map", "interleave", "zip", "padded_batch"):
        made = Pipeline(made.ops, None, made.whole)
    return made
