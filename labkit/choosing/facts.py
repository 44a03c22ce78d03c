"""What a choice is made from: a model, its data, a machine, and the numbers that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from labkit.known_hardware import LINKS
from labkit.memory.step_memory import USABLE, Footprint, footprint

# A training that is done within an hour needs no second device.
ENOUGH_SECONDS = 3600.0


@dataclass(frozen=True)
class Model:
    """A model and the numbers it trains with; `activation_bytes` are per example.

    `step_seconds` is the time in which one device computes a step, as you measured it. `shape` has
    the layers, hidden, heads, sequence and vocabulary of a transformer.
    """

    parameters: float
    activation_bytes: float = 0
    convention: str = "float32 adam"
    step_seconds: float | None = None
    shape: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Data:
    """Examples, their size, how many of them one device takes per step, and where they may go."""

    examples: float
    example_bytes: float = 0
    batch: int = 32
    sites: int = 1
    may_leave_site: bool = True
    epochs: float = 1


@dataclass(frozen=True)
class Machine:
    """Devices a machine, their memory in bytes, and the links between them in bytes per second.

    `link` joins the devices of one machine; `network` is what a machine sends to others, over all
    its cards. `equal` says that all devices are alike and stay up. `host_memory` is that of one
    machine, beside its devices.
    """

    device_memory: float
    devices: int = 1
    machines: int = 1
    link: float = 16e9
    network: float = 1.25e9
    equal: bool = True
    host_memory: float = 0


@dataclass(frozen=True)
class Facts:
    """The three together, and the numbers that the questions need."""

    model: Model
    data: Data
    machine: Machine
    enough: float = ENOUGH_SECONDS

    @property
    def one_machine(self) -> Facts:
        """The same with one of the machines; unchanged if each of them has one device."""
        alone = self.machine.devices == 1
        return self if alone else replace(self, machine=replace(self.machine, machines=1))

    @property
    def devices(self) -> int:
        """Devices of all machines."""
        return self.machine.devices * self.machine.machines

    @property
    def usable(self) -> int:
        """Bytes of one device that a training step may take."""
        return int(USABLE * self.machine.device_memory)

    @property
    def slowest_link(self) -> float:
        """Bytes per second of the slowest link that a step must cross."""
        link, network = self.machine.link, self.machine.network
        return link if self.machine.machines == 1 else min(link, network)

    def step(self, batch: int | None = None) -> Footprint:
        """The footprint of a data-parallel step with `batch` examples per device."""
        return footprint(
            self.model.parameters,
            batch=self.data.batch if batch is None else batch,
            activation_bytes=self.model.activation_bytes,
            example_bytes=self.data.example_bytes,
            convention=self.model.convention,
        )

    def sharded(self) -> Footprint:
        """One example, with the state sharded over all devices."""
        return self.step(1).sharded(self.devices)

    def layers_split(self) -> Footprint:
        """As `sharded`, and each layer's activations split inside a machine."""
        return self.sharded().sharded(self.machine.devices, ("activations",))

    @property
    def sharding_bytes(self) -> int:
        """What stage 3 of ZeRO moves per step: weights gathered twice, gradients reduced once."""
        return 2 * self.step()["weights"] + self.step()["gradients"]

    def link_seconds(self, count: float) -> float:
        """(n-1)/n of these bytes over the slowest link, without latency."""
        return (self.devices - 1) / self.devices * count / self.slowest_link

    @property
    def all_reduce(self) -> float:
        """Seconds of a ring all-reduce of the gradients, with NCCL's latency of such a link."""
        name = "PCIe 3 x16" if self.machine.machines == 1 else "Ethernet 25 Gbit/s"
        latency = LINKS[name].latency or 0.0
        return 2 * (self.devices - 1) * latency + self.link_seconds(2 * self.step()["gradients"])

    @property
    def one_server(self) -> float:
        """Seconds in which one parameter server sends weights to all and gets their gradients."""
        step = self.step()
        return self.devices * (step["weights"] + step["gradients"]) / self.slowest_link

    @property
    def alone(self) -> float | None:
        """Seconds of the whole training on one device."""
        steps = math.ceil(self.data.examples / self.data.batch) * self.data.epochs
        return None if self.model.step_seconds is None else steps * self.model.step_seconds

    def speedup(self, communication: float) -> tuple[float, float] | None:
        """Of all devices with this communication per step: without overlap, and if all overlaps."""
        if (seconds := self.model.step_seconds) is None:
            return None
        work = self.devices * seconds
        return work / (seconds + communication), work / max(seconds, communication)
