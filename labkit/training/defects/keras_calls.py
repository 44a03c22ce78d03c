"""What Keras' layers, losses and models mean for the rules."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from labkit.training.defects.story import Fit, Work
from labkit.training.defects.values import (
    Activation,
    Array,
    Const,
    Dotted,
    Layer,
    Loss,
    Model,
    Number,
    Output,
    Pipeline,
    Seq,
    Text,
    Unknown,
)

__all__ = ["known", "new_model", "of_model"]

_PASSING = frozenset(
    {"Flatten", "Reshape", "Dropout", "Identity", "Input", "InputLayer", "SpatialDropout2D"}
)
_LOGITS_OF = frozenset({"Dense", "Conv2D", "Conv1D", "EinsumDense"})
_FIT = ("x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split",
        "validation_data", "shuffle")  # fmt: skip
_COMPILE = ("optimizer", "loss", "loss_weights", "metrics")
_EVALUATIONS = ("evaluate", "predict", "test_on_batch", "predict_on_batch")


def known(
    reader: Any, node: ast.Call, called: Dotted, args: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """A call of something in Keras or TensorFlow that is neither data nor a clock."""
    path, last = called.path, called.last
    if path == "tensorflow.saved_model.load":
        return Unknown("saved model")
    if path == "tensorflow.saved_model.save" and args and isinstance(args[0], Model):
        why = "what tf.saved_model.load later gives back is no Keras model and cannot be called"
        reader.story.breaks.append((reader.spot(node), why))
        return Unknown()
    if called.root not in ("keras", "tensorflow"):
        return Unknown()
    if last in ("Sequential", "Model", "Functional"):
        return _built(reader, node, last, args, keywords)
    if last in ("load_model", "clone_model") or ".applications." in path:
        return new_model(reader, node, None)
    loss = _loss(reader, node, called, args, keywords)
    if loss is not None:
        return loss
    if last in ("softmax", "sigmoid", "log_softmax", "relu") and args:
        gives: Activation = "probabilities" if last in ("softmax", "sigmoid") else "unknown"
        return Output(Layer(last, gives))
    if last[0].isupper() and (".layers" in path or last == "Input"):
        return _layer(reader, node, last, args, keywords)
    return Unknown()


def _layer(
    reader: Any, node: ast.Call, kind: str, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    if "input_shape" in keywords and kind not in ("Input", "InputLayer"):
        why = "input_shape in a layer works, but only warns"
        reader.story.breaks.append((reader.spot(node), why))
    if kind == "Input":
        return Output(Layer(kind, "passes"))
    place = {"Dense": 1, "Activation": 0, "Conv2D": 5, "Conv1D": 5}.get(kind)
    positional = args[place] if place is not None and len(args) > place else Const(None)
    activation = keywords.get("activation", positional)
    if kind == "Softmax":
        return Layer(kind, "probabilities")
    if kind in _PASSING:
        return Layer(kind, "passes")
    if kind == "Activation" or kind in _LOGITS_OF:
        return Layer(kind, _gives(activation))
    return Layer(kind, "unknown")


def _gives(activation: Any) -> Activation:
    if activation == Const(None):
        return "logits"
    name = activation.value if isinstance(activation, Text) else getattr(activation, "last", "")
    if name in ("softmax", "sigmoid"):
        return "probabilities"
    return "logits" if name == "linear" else "unknown"


def _loss(
    reader: Any, node: ast.Call, called: Dotted, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Loss | None:
    kind = kind_of_loss(called.last)
    if kind is None or not called.last[0].isupper():
        return None
    given = keywords.get("from_logits", args[0] if args else Const(False))
    if isinstance(given, Number):
        given = Const(bool(given.value))
    from_logits = given.value if isinstance(given, Const) else None
    return Loss(kind, from_logits, reader.spot(node))


def kind_of_loss(name: str) -> Literal["categorical", "sparse", "binary"] | None:
    """Which labels a loss of this name wants, None if it is none of these."""
    plain = name.replace("_", "").lower()
    if plain == "sparsecategoricalcrossentropy":
        return "sparse"
    if plain == "categoricalcrossentropy":
        return "categorical"
    return "binary" if plain == "binarycrossentropy" else None


def new_model(reader: Any, node: ast.AST, layers: list[Layer] | None) -> Model:
    """A model made here."""
    made = Model(reader.spot(node), layers, built_in=reader.scope, loops=reader.loops)
    reader.tick()
    reader.story.models.append(made)
    return made


def _built(
    reader: Any, node: ast.Call, kind: str, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Model:
    if kind == "Sequential":
        given = keywords.get("layers", args[0] if args else Seq(()))
        return new_model(reader, node, _layers(given.items) if isinstance(given, Seq) else None)
    output = keywords.get("outputs", args[1] if len(args) > 1 else None)
    if isinstance(output, Seq) and len(output.items) == 1:
        output = output.items[0]
    return new_model(reader, node, [output.layer] if isinstance(output, Output) else None)


def _layers(items: Sequence[Any]) -> list[Layer]:
    return [_as_layer(one) for one in items]


def _as_layer(value: Any) -> Layer:
    if isinstance(value, Layer):
        return value
    if isinstance(value, Output):
        return value.layer
    return Layer("model", value.gives if isinstance(value, Model) else "unknown")


def of_model(
    reader: Any,
    node: ast.Call,
    model: Model,
    name: str,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """A call of one of the model's methods."""
    if name == "add" and model.layers is not None and args:
        model.layers.append(_as_layer(args[0]))
    elif name == "compile":
        _compile(reader, node, model, args, keywords)
    elif name == "fit":
        _fit(reader, node, model, args, keywords)
    elif name == "train_on_batch":
        model.warm = True
    elif name in _EVALUATIONS:
        reader.story.work.append(Work(reader.tick(), reader.spot(node), "evaluation"))
    elif name == "save":
        _save(reader, node, args, keywords)
    return Unknown()


def _compile(
    reader: Any, node: ast.Call, model: Model, args: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    given = {**dict(zip(_COMPILE, args, strict=False)), **keywords}
    loss = given.get("loss")
    found = loss if isinstance(loss, Loss) else None
    named = loss.value if isinstance(loss, Text) else getattr(loss, "last", "")
    kind = kind_of_loss(named) if isinstance(named, str) else None
    if found is None and kind is not None:
        spot = loss.spot if isinstance(loss, Text) else None
        found = Loss(kind, False, spot or reader.spot(_written(node)))
    if reader.branches and model.compiled is not None and model.loss != found:
        found = None  # Which of the two branches was taken cannot be seen.
    model.loss, model.warm = found, False
    model.compiled, model.compiled_in = reader.spot(node), reader.scope
    model.loops = max(model.loops, reader.loops)
    reader.tick()


def _written(node: ast.Call) -> ast.AST:
    """Where the loss stands in the call."""
    for keyword in node.keywords:
        if keyword.arg == "loss":
            return keyword.value
    return node.args[1] if len(node.args) > 1 else node


def _fit(
    reader: Any, node: ast.Call, model: Model, args: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    given = {**dict(zip(_FIT, args, strict=False)), **keywords}
    x, y = given.get("x"), given.get("y")
    batch: Number | None = None
    spot, shuffles, labels, pipeline = reader.spot(node), None, None, None
    if isinstance(x, Pipeline):
        pipeline = x
        reader.story.pipelines.append(x)
        labels = x.labels
        places = x.places_of("batch")
        if x.whole:
            shuffles = bool(x.places_of("shuffle"))
            if places:
                _, argument, spot = x.ops[places[-1]]
                batch = _batch(argument)
    elif y is not None or isinstance(x, Array):
        batch = _batch(given.get("batch_size", Number(32)))
        shuffle = given.get("shuffle", Const(True))
        shuffles = shuffle.value if isinstance(shuffle, Const) else None
        labels = y.one_hot if isinstance(y, Array) else None
    for array in (x, y):
        if isinstance(array, Array):
            array.used = True
    watched = any(given.get(key, Const(None)) != Const(None)
                  for key in ("validation_data", "validation_split"))  # fmt: skip
    seen = model.built_here or model.compiled is not None
    cold = seen and not model.warm
    reader.story.fits.append(
        Fit(
            reader.tick(),
            reader.spot(node),
            model,
            cold,
            batch,
            spot,
            shuffles,
            labels,
            model.loss,
            watched,
            pipeline,
        )
    )
    model.warm = True


def _batch(argument: Any) -> Number | None:
    if argument == Const(None):
        return Number(32)
    if isinstance(argument, Unknown) and argument.name:
        return Number(1, (argument.name,))
    return argument if isinstance(argument, Number) else None


def _save(reader: Any, node: ast.Call, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    path = args[0] if args else keywords.get("filepath")
    if isinstance(path, Text) and not path.value.endswith((".keras", ".h5", ".hdf5")):
        why = "model.save needs a name that ends in .keras: this line stops with a ValueError"
        reader.story.breaks.append((reader.spot(node), why))
