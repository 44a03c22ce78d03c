"""Adam and SGD as one TensorFlow kernel per variable, applied by each replica to its own copy.

Keras' Adam is a dozen small operations a variable, and under a strategy each update leaves the
replicas. Here each replica already holds the summed gradient and updates its own copy; the copies
stay equal because all do the same. The tests compare both rules with Keras' own optimizers.

>>> scaled_learning_rate(0.1, batch=8192, base_batch=256)
3.2
"""

from collections.abc import Sequence
from typing import Any

from labkit.arguments import number, one_of, whole
from labkit.hardware.devices import import_tensorflow

SLOTS = {"adam": 2, "sgd": 0}  # variables that the rule keeps for each weight
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7  # Keras' defaults


class Optimizer:
    """A rule ("adam" or "sgd"), its learning rate with a linear warm-up, and its own variables."""

    def __init__(self, rule: str, learning_rate: float, warmup_steps: int = 0) -> None:
        self.rule = one_of("optimizer", rule, SLOTS)
        self.learning_rate = number("learning_rate", learning_rate, above=0)
        self.warmup_steps = whole("warmup_steps", warmup_steps)
        self.steps: Any = None  # shape (), counts updates
        self.slots: list[list[Any]] = []  # for each slot one variable of each weight's shape

    def build(self, variables: Sequence[Any]) -> None:
        """Make the optimizer's own variables; call it inside the strategy's scope."""
        tf = import_tensorflow()
        self.steps = tf.Variable(0.0, trainable=False, name="steps")
        self.slots = [
            [tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for v in variables]
            for _ in range(SLOTS[self.rule])
        ]

    def variables(self) -> list[Any]:
        """Returns everything that training changes besides the model."""
        return [self.steps, *(variable for slot in self.slots for variable in slot)]

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Update this replica's variables once, with gradients that are already summed."""
        tf = import_tensorflow()
        raw = tf.raw_ops
        raw.AssignAddVariableOp(resource=self.steps.handle, value=tf.constant(1.0))
        kind = gradients[0].dtype
        step = tf.cast(raw.ReadVariableOp(resource=self.steps.handle, dtype=tf.float32), kind)
        rate = tf.constant(self.learning_rate, kind)
        if self.warmup_steps:
            rate *= tf.minimum(step / float(self.warmup_steps), 1.0)
        handles = [handle_of(variable) for variable in variables]
        if self.rule == "sgd":
            for handle, gradient in zip(handles, gradients, strict=True):
                raw.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=gradient)
            return
        power_1, power_2 = BETA_1**step, BETA_2**step
        for handle, gradient, mean, square in zip(handles, gradients, *self.slots, strict=True):
            raw.ResourceApplyAdam(
                var=handle, m=mean.handle, v=square.handle, grad=gradient, lr=rate,
                beta1_power=power_1, beta2_power=power_2,
                beta1=BETA_1, beta2=BETA_2, epsilon=EPSILON,
            )  # fmt: skip


class SharedUpdate:
    """An optimizer for weights that all replicas share, which are updated once for all of them."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Leave the replicas, and update with the gradients of the first: all are equal."""
        tf = import_tensorflow()

        def update(strategy: Any, *per_replica: Any) -> None:
            first = [strategy.experimental_local_results(each)[0] for each in per_replica]
            self._optimizer.apply(first, variables)

        tf.distribute.get_replica_context().merge_call(update, args=tuple(gradients))


def handle_of(variable: Any) -> Any:
    """Returns the resource of this replica's copy; Keras wraps TensorFlow's variable in its own."""
    return (variable.value if hasattr(variable, "path") else variable).handle


def scaled_learning_rate(rate: float, batch: int, base_batch: int) -> float:
    """Returns the rate by the linear rule (Goyal et al. 2017): k times the batch and the rate.

    It holds for SGD, in a certain range, and after a warm-up; the lecture tests it.
    """
    rate = number("rate", rate, above=0)
    return rate * whole("batch", batch, at_least=1) / whole("base_batch", base_batch, at_least=1)
