"""Adam and SGD as one TensorFlow kernel per variable, applied by each replica to its own copy.

Keras' Adam writes the same formula as a dozen small operations, and under a strategy it leaves the
replicas and comes back for every update. Here each replica already holds the summed gradient, so it
updates its own copy, and the copies stay equal because they all do the same.
The tests hold both against Keras' own optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.training.asked import whole

__all__ = ["Optimizer", "UpdatedOnce"]

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7  # Keras' defaults


class Optimizer:
    """A rule ("adam" or "sgd"), its learning rate with a linear warm-up, and its own variables."""

    def __init__(self, rule: str, learning_rate: Any, warmup_steps: int = 0) -> None:
        if rule not in _RULES:
            raise LabError(f"There is no optimizer called {rule!r}. Take 'adam' or 'sgd'.")
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, Real):
            raise LabError(f"The learning rate is a number such as 0.001, not {learning_rate!r}.")
        if not 0 < float(learning_rate) < 1e3:
            raise LabError(f"A learning rate of {learning_rate!r} cannot train; try 0.001.")
        self.rule = rule
        self.learning_rate = float(learning_rate)
        self.warmup_steps = whole("warmup_steps", warmup_steps, 0, 100)
        self.steps: Any = None
        self.slots: list[list[Any]] = []

    def build(self, variables: Sequence[Any]) -> None:
        """Make the optimizer's own variables; call it inside the strategy's scope."""
        tf = import_tensorflow()
        self.steps = tf.Variable(0.0, trainable=False, name="steps")
        count, _ = _RULES[self.rule]
        self.slots = [
            [tf.Variable(tf.zeros(v.shape), trainable=False) for v in variables]
            for _ in range(count)
        ]

    def variables(self) -> list[Any]:
        """Everything that training changes besides the model."""
        return [self.steps, *(variable for slot in self.slots for variable in slot)]

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """One update of this replica's variables with gradients that are already reduced."""
        import tensorflow as tf

        tf.raw_ops.AssignAddVariableOp(resource=self.steps.handle, value=tf.constant(1.0))
        step = tf.raw_ops.ReadVariableOp(resource=self.steps.handle, dtype=tf.float32)
        rate = tf.constant(self.learning_rate)
        if self.warmup_steps:
            rate *= tf.minimum(1.0, step / float(self.warmup_steps))
        _, update = _RULES[self.rule]
        update(self.slots, gradients, [_handle(v) for v in variables], step, rate)


class UpdatedOnce:
    """An optimizer for weights that all replicas share: updated once, not once by each of them."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Leave the replicas, update with one of their equal gradients, and go back to them."""
        import tensorflow as tf

        def update(strategy: Any, *everyones: Any) -> None:
            own = [strategy.experimental_local_results(each)[0] for each in everyones]
            self._optimizer.apply(own, variables)

        tf.distribute.get_replica_context().merge_call(update, args=tuple(gradients))


def _sgd(slots: Any, gradients: Sequence[Any], handles: list[Any], step: Any, rate: Any) -> None:
    """weight -= rate · gradient."""
    import tensorflow as tf

    for handle, gradient in zip(handles, gradients, strict=True):
        tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=gradient)


def _adam(slots: Any, gradients: Sequence[Any], handles: list[Any], step: Any, rate: Any) -> None:
    """Adam (Kingma and Ba, 2014): means of the gradient and of its square steer each weight."""
    import tensorflow as tf

    power_1, power_2 = tf.pow(BETA_1, step), tf.pow(BETA_2, step)
    means, squares = slots
    for i, (handle, gradient) in enumerate(zip(handles, gradients, strict=True)):
        tf.raw_ops.ResourceApplyAdam(
            var=handle,
            m=means[i].handle,
            v=squares[i].handle,
            beta1_power=power_1,
            beta2_power=power_2,
            lr=rate,
            beta1=BETA_1,
            beta2=BETA_2,
            epsilon=EPSILON,
            grad=gradient,
        )


_RULES = {"adam": (2, _adam), "sgd": (0, _sgd)}


def _handle(variable: Any) -> Any:
    """The resource of this replica's copy; Keras wraps TensorFlow's variable in one of its own."""
    return (
        getattr(variable, "value", variable).handle
        if hasattr(variable, "path")
        else variable.handle
    )
