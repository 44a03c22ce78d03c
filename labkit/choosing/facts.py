"""The facts of a choice: a model, its data, a machine, and numbers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from labkit.arguments import bytes_per_second, number, one_of, whole
from labkit.choosing.large_systems import checkpoint_interval, goodput
from labkit.kinds import LabError
from labkit.known_hardware import LINKS
from labkit.memory.step_memory import CONVENTIONS, USABLE

# Rules of thumb of this course. A training that is done within an hour needs no second device. More
# devices may cost twice the device-hours of the fewest that can do it.
ENOUGH_SECONDS = 3600.0
WORTH = 0.5
# Full recomputation keeps the input of each layer, 2sh bytes an example in 16 bits, and computes
# the forward pass twice: 4/3 of a step. Without a shape one result in four counts as an input.
RECOMPUTED, AGAIN = 1 / 4, 4 / 3
SHAPE = ("layers", "hidden", "heads", "sequence", "vocabulary")
# Assumed: seconds to write a checkpoint, and to start again after a loss.
WRITE, RESTART = 10.0, 300.0
COUNTS = ("batch", "sites", "devices", "machines", "trials", "experts", "chosen")
POSITIVE = ("parameters", "step_seconds", "examples", "epochs", "device_memory", "slowest", "mtbf")
RATES = ("link", "network")
FROM_0 = ("activation_bytes", "embeddings", "expert_parameters", "row_bytes", "example_bytes",
          "host_memory", "network_latency", "enough", "worth")  # fmt: skip


class Checked:
    """A dataclass that checks its numbers; NumPy's integers become Python's."""

    def __post_init__(self) -> None:
        parameters = getattr(self, "parameters", 0)
        most = {"slowest": 1.0, "embeddings": parameters, "expert_parameters": parameters}
        for name, value in [*vars(self).items()]:
            if name in COUNTS:
                object.__setattr__(self, name, whole(name, value, at_least=1, at_most=10**6))
            elif name in RATES:
                object.__setattr__(self, name, bytes_per_second(name, value))
            elif name in POSITIVE and (name != "step_seconds" or value is not None):
                number(name, value, above=0, at_most=most.get(name), infinite=name == "mtbf")
            elif name in FROM_0:
                number(name, value, at_least=0, at_most=most.get(name))
            elif name == "convention":
                one_of(name, value, CONVENTIONS)
            elif name == "shape" and value is not None:
                object.__setattr__(self, name, checked_shape(value))


def checked_shape(shape: Mapping[str, int]) -> dict[str, int]:
    """Returns the shape of a transformer, if it has all sizes."""
    if missing := [name for name in SHAPE if name not in shape]:
        raise LabError(f"The shape of a transformer also needs {', '.join(missing)}.")
    most = {"layers": 1_000, "heads": 10_000}
    counts = {*SHAPE, *shape} - {"block", "flash", "dropout", "tied", "keep_silu"}
    return {name: whole(name, size, at_least=1, at_most=most.get(name, 10**9))
            if name in counts else size for name, size in shape.items()}  # fmt: skip


@dataclass(frozen=True)
class Model(Checked):
    """A model and the numbers it trains with; `activation_bytes` are per example.

    `step_seconds` is the time in which one device, the fastest, computes a step, as you measured
    it. `shape` has the layers, hidden, heads, sequence and vocabulary of a transformer; without it
    no way that cuts the model is listed. `activation_bytes` may be those of full recomputation
    (`recomputed`). `embeddings` are the parameters in tables of which an example reads `row_bytes`.
    `expert_parameters` are those in all `experts` of all layers, of which `chosen` work on a token;
    the `shape` may give `key_heads` and `mlp`, where they are not heads and 4 × hidden.
    """

    parameters: float
    activation_bytes: float = 0
    convention: str = "float32 adam"
    step_seconds: float | None = None
    shape: Mapping[str, int] | None = None
    recomputed: bool = False
    embeddings: float = 0
    row_bytes: float = 0
    experts: int = 1
    chosen: int = 1
    expert_parameters: float = 0


@dataclass(frozen=True)
class Data(Checked):
    """Examples, their size, how many of them one device takes per step, and where they may go."""

    examples: float
    example_bytes: float = 0
    batch: int = 32
    sites: int = 1
    may_leave_site: bool = True
    epochs: float = 1


@dataclass(frozen=True)
class Machine(Checked):
    """Devices a machine, their memory in bytes, and the links between them.

    `link` joins the devices of one machine; `network` is what a machine sends to others, over all
    its cards (both in bytes per second, or words such as "10 Gbit/s"), and `network_latency` the
    seconds that each message between machines takes beside its bytes; labkit.calibrate measures
    both. `slowest` is the speed of the slowest device as a share of the fastest; the others lie
    evenly between. A machine is lost every `mtbf` seconds on average. `host_memory` is that of one
    machine, beside its devices.
    """

    device_memory: float
    devices: int = 1
    machines: int = 1
    link: float = 16e9
    network: float = 1.25e9
    slowest: float = 1.0
    mtbf: float = math.inf
    host_memory: float = 0
    network_latency: float = 14e-6  # NCCL's for a step over a network


@dataclass(frozen=True)
class Facts(Checked):
    """Model, data and machine, the number of trainings, and the numbers that ways need."""

    model: Model
    data: Data
    machine: Machine
    trials: int = 1
    enough: float = ENOUGH_SECONDS
    worth: float = WORTH

    @property
    def at_a_site(self) -> Facts:
        """The same at one of the places that hold data."""
        sites, data, machine = self.data.sites, self.data, self.machine
        return replace(
            self,
            data=replace(data, examples=max(1, data.examples / sites), sites=1),
            machine=replace(machine, machines=max(1, machine.machines // sites)),
        )

    @property
    def shortened(self) -> Facts:
        """The same with 16-bit numbers and recomputation, as far as it does not have them."""
        model, kept = self.model, self.model.activation_bytes
        again = model.convention == "float32 sgd" and model.recomputed  # it has no 16-bit form
        kept /= 2 if model.convention.startswith("float32") and not again else 1
        if not model.recomputed:
            seconds = model.step_seconds and AGAIN * model.step_seconds
            model = replace(model, recomputed=True, step_seconds=seconds)
            if shape := model.shape:
                kept = min(kept, 2 * shape["layers"] * shape["sequence"] * shape["hidden"])
            else:
                kept *= RECOMPUTED
        convention = model.convention.replace("float32 adam", "mixed adam 16")
        model = replace(model, activation_bytes=kept, convention=convention)
        return replace(self, model=model)

    @property
    def usable(self) -> int:
        """Bytes of one device that a training step may take."""
        return int(USABLE * self.machine.device_memory)

    @property
    def sizes(self) -> tuple[float, float, float]:
        """Bytes of weights, gradients and optimizer; of embeddings only gradients that are read."""
        weights, gradients, optimizer = CONVENTIONS[self.model.convention]
        count, dense = self.model.parameters, self.model.parameters - self.model.embeddings
        return weights * count, gradients * dense, optimizer * count

    @property
    def layers(self) -> int:
        """Layers whose weights can be gathered one after the other."""
        return self.model.shape["layers"] if self.model.shape else 1

    @property
    def gathered(self) -> float:
        """Bytes of the weights of one such layer; 0 where the model is not cut."""
        return self.sizes[0] / self.layers * (self.layers > 1)

    @property
    def alone(self) -> float | None:
        """Seconds of all trainings on one device, as if it had room."""
        steps = math.ceil(self.data.examples / self.data.batch) * self.data.epochs * self.trials
        return None if self.model.step_seconds is None else steps * self.model.step_seconds

    def ring(self, nbytes: float, machines: int, ranks: int, calls: int = 1) -> float:
        """Returns the seconds of (n-1)/n of these bytes over the slowest link and 2(n-1) messages.

        An all-reduce has 2 × the gradients; the latency inside a machine is NCCL's for PCIe.
        """
        link, latency = self.machine.link, LINKS["PCIe 3 x16"].latency or 0.0
        if machines > 1:
            link, latency = min(link, self.machine.network), self.machine.network_latency
        return 2 * (ranks - 1) * calls * latency + (ranks - 1) / ranks * nbytes / link

    def reduce(self, nbytes: float, machines: int, ranks: int) -> float:
        """Returns the seconds of a `ring`, or of rings inside and between machines if faster."""
        inside = self.ring(nbytes, 1, self.machine.devices)
        flat, between = (self.ring(nbytes, machines, one) for one in (ranks, machines))
        return min(flat, inside + between)

    def all_to_all(self, nbytes: float, machines: int, ranks: int, stride: int) -> float:
        """Returns the seconds in which each of `ranks`, `stride` apart, sends its bytes to all."""
        inside, devices = max(1, min(ranks, self.machine.devices // stride)), self.machine.devices
        outside = nbytes * (ranks - inside) / (ranks - 1) * (machines > 1)
        within = (LINKS["PCIe 3 x16"].latency or 0.0) + (nbytes - outside) / self.machine.link
        if not outside:
            return within
        return max(within, self.machine.network_latency + devices * outside / self.machine.network)

    def training_share(self, machines: int) -> float:
        """Returns the share of the time that failures and checkpoints leave of training."""
        if math.isinf(mtbf := self.machine.mtbf / machines):
            return 1.0
        interval = checkpoint_interval(mtbf, WRITE)
        return max(goodput(interval, mtbf=mtbf, write=WRITE, restart=RESTART).training, 1e-9)
