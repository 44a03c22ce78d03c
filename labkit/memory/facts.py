"""The plain facts that a choice of parallelism follows from: model, data, machine."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.kinds import LabError
from labkit.memory.footprint import CONVENTIONS, Footprint, footprint, whole

__all__ = ["USABLE", "Data", "Facts", "Machine", "Model"]

# A tenth of a device's memory stays with the framework, its kernels and fragments of free space.
# A rule of thumb of this course: look at your own device before you rely on it.
USABLE = 0.9


@dataclass(frozen=True)
class Model:
    """A model and the numbers it trains with.

    >>> Model(parameters=101_770, activation_bytes=4_200)
    Model(parameters=101770, activation_bytes=4200, convention='float32 adam')
    """

    parameters: float
    activation_bytes: float = 0
    convention: str = "float32 adam"

    def __post_init__(self) -> None:
        whole("parameters", self.parameters, least=1)
        whole("activation_bytes", self.activation_bytes)
        if self.convention not in CONVENTIONS:
            raise LabError(
                f"There is no convention {self.convention!r} for the bytes of a parameter. "
                f"Choose one of: {', '.join(CONVENTIONS)}."
            )


@dataclass(frozen=True)
class Data:
    """Examples, their size, how many of them one device takes per step, and where they may go.

    >>> Data(examples=60_000, example_bytes=784)
    Data(examples=60000, example_bytes=784, batch=32, sites=1, may_leave_site=True)
    """

    examples: float
    example_bytes: float = 0
    batch: int = 32
    sites: int = 1
    may_leave_site: bool = True

    def __post_init__(self) -> None:
        whole("examples", self.examples, least=1)
        whole("example_bytes", self.example_bytes)
        whole("batch", self.batch, least=1)
        whole("sites", self.sites, least=1)


@dataclass(frozen=True)
class Machine:
    """Devices, their memory in bytes, and the links between them in bytes per second.

    `link` joins the devices of one machine, `network` joins the machines. `equal` says that all
    devices are alike and stay up.

    >>> Machine(device_memory=16e9, devices=2)
    Machine(device_memory=16000000000.0, devices=2, machines=1, link=16000000000.0, \
network=1250000000.0, equal=True)
    """

    device_memory: float
    devices: int = 1
    machines: int = 1
    link: float = 16e9
    network: float = 1.25e9
    equal: bool = True

    def __post_init__(self) -> None:
        whole("device_memory", self.device_memory, least=1)
        whole("devices", self.devices, least=1)
        whole("machines", self.machines, least=1)
        whole("link", self.link, least=1)
        whole("network", self.network, least=1)


@dataclass(frozen=True)
class Facts:
    """The three together, and the numbers that the questions ask for."""

    model: Model
    data: Data
    machine: Machine

    @property
    def devices(self) -> int:
        """Devices of all machines; `Machine.devices` counts those of one."""
        return self.machine.devices * self.machine.machines

    @property
    def usable(self) -> int:
        """Bytes of one device that a training step may take."""
        return int(USABLE * self.machine.device_memory)

    @property
    def slowest_link(self) -> float:
        """Bytes per second of the slowest link that a step must cross."""
        if self.machine.machines == 1:
            return self.machine.link
        return min(self.machine.link, self.machine.network)

    @property
    def weights(self) -> int:
        """Bytes of the weights alone."""
        return self.step()["weights"]

    def steps(self, devices: int) -> int:
        """Steps of one pass through the data."""
        return -(-round(self.data.examples) // (self.data.batch * devices))

    @property
    def largest_batch(self) -> int:
        """The most examples whose step fits on one device beside the whole model; 0 if none."""
        room = self.usable - self.step().state
        per_example = round(self.model.activation_bytes) + round(self.data.example_bytes)
        if room < per_example:
            return 0
        return self.data.batch if per_example == 0 else min(self.data.batch, room // per_example)

    def step(self, batch: int | None = None) -> Footprint:
        """The footprint of a data-parallel step with `batch` examples per device."""
        return footprint(
            self.model.parameters,
            batch=batch or self.data.batch,
            activation_bytes=self.model.activation_bytes,
            example_bytes=self.data.example_bytes,
            convention=self.model.convention,
        )

    def sharded(self) -> Footprint:
        """One example, with the state shared out over all devices."""
        return self.step(1).shared_out(
            self.devices, ("weights", "gradients", "optimizer"), "state shared out"
        )

    def layers_split(self) -> Footprint:
        """One example, with the state shared out and each layer's work split inside a machine."""
        return self.sharded().shared_out(
            self.machine.devices, ("activations",), "state shared out, layers split"
        )

    def all_reduce_seconds(self) -> float:
        """A ring all-reduce of the gradients at the speed of the slowest link, no latency."""
        gradients = self.step()["gradients"] or self.weights
        return 2 * (self.devices - 1) / self.devices * gradients / self.slowest_link

    def gather_seconds(self) -> float:
        """Three times the weights over the slowest link: what sharded training moves per step."""
        return 3 * (self.devices - 1) / self.devices * self.weights / self.slowest_link
