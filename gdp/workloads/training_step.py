"""The training step of a TensorFlow program written with plain ops: forward pass, gradients, update, traced as one function and captured.

For models that are no Keras models (those: `gdp.capture.tensorflow_training`). Weights have shapes but no values, so that tracing a large model takes no memory for
them. The update of a weight is one fused op, as in TensorFlow's own training scripts of the papers' time.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gdp.capture.tensorflow import capture_concrete_function
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph

Optimizer = Literal["gradient-descent", "adam"]


class Weights:
    """The trained variables of one program. A weight is read once a step, so that however often it is used it is one tensor."""

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self._values: dict[str, Any] = {}

    def __call__(self, name: str, *shape: int) -> Any:
        """The value of the float32 weight of this name and shape, made and read in the current name scope when first asked for."""
        if name not in self.variables:
            self.variables[name] = _variable(name, shape)
            self._values[name] = self.variables[name].read_value()
        assert tuple(self._values[name].shape) == shape, f"{name} was made with another shape"
        return self._values[name]


Loss = Callable[..., tuple[Any, Sequence[Any]]]
"""`(weights, *inputs) -> (scalar loss, other results of the step)`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Update:
    """How weights follow their gradients."""

    optimizer: Optimizer
    """`adam` keeps two slots for each weight, and turns the gradient of looked-up rows into one of the whole table."""
    clip_norm: float | None = None
    """gradients are scaled down together to this global norm, which waits for all of them; `None` leaves them."""


def capture_plain_step(loss: Loss, inputs: Sequence[Any], *, update: Update, source: str) -> Graph:
    """The graph of one training step.

    Args:
        loss: builds the forward pass from `Weights` and a tensor per input.
        inputs: `tf.TensorSpec`s with static shapes and names.
        update: how weights are changed.
        source: what it is, for people.

    Raises:
        InputError: as `capture_concrete_function`.
    """
    tf = import_tensorflow()
    slots: list[Any] = []  # kept alive until the capture

    def step(*tensors: Any) -> tuple[Any, ...]:
        weights = Weights()
        slots.append(weights)
        with tf.GradientTape() as tape:
            value, others = loss(weights, *tensors)
        variables = list(weights.variables.values())
        gradients = tape.gradient(value, variables)
        if update.clip_norm is not None:
            with tf.name_scope("clip"):
                gradients, _ = tf.clip_by_global_norm(gradients, update.clip_norm)
        with tf.name_scope("update"):
            apply = _adam if update.optimizer == "adam" else _gradient_descent
            slots.append(apply(tf, list(weights.variables), variables, gradients))
        return (value, *others)

    return capture_concrete_function(tf.function(step, autograph=False).get_concrete_function(*inputs), source=source)


def _variable(name: str, shape: Sequence[int]) -> Any:
    tf = import_tensorflow()
    from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

    with tf.init_scope():
        return UninitializedVariable(trainable=True, name=name.replace("/", "_"), shape=tuple(shape), dtype=tf.float32)


def _gradient_descent(tf: Any, names: Sequence[str], variables: Sequence[Any], gradients: Sequence[Any]) -> None:
    rate = tf.constant(1.0)
    for name, variable, gradient in zip(names, variables, gradients, strict=True):
        with tf.name_scope(name):
            if isinstance(gradient, tf.IndexedSlices):
                tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=gradient.indices, updates=gradient.values * rate)
            else:
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def _adam(tf: Any, names: Sequence[str], variables: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
    """Kingma and Ba, arXiv 1412.6980, algorithm 1; the two powers are variables that every update reads and that are multiplied at the end of the step."""
    powers = [_variable(f"beta{number}_power", ()) for number in (1, 2)]
    betas = [tf.constant(0.9), tf.constant(0.999)]
    values = [power.read_value() for power in powers]
    rate, epsilon = tf.constant(1e-4), tf.constant(1e-8)
    slots = []
    for name, variable, gradient in zip(names, variables, gradients, strict=True):
        with tf.name_scope(name):
            moments = [_variable(f"{name}_{moment}", tuple(variable.shape)) for moment in ("mean", "square")]
            for moment in moments:
                tf.compat.v1.get_default_graph().watch_variable(
                    moment
                )  # only its handle is used, by which the function does not know it as its own
            slots += moments
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=moments[0].handle,
                v=moments[1].handle,
                beta1_power=values[0],
                beta2_power=values[1],
                lr=rate,
                beta1=betas[0],
                beta2=betas[1],
                epsilon=epsilon,
                grad=tf.convert_to_tensor(gradient),
            )
    for power, value, beta in zip(powers, values, betas, strict=True):
        power.assign(value * beta)
    return [*slots, *powers]
