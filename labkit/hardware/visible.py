"""Which number CUDA, and so TensorFlow, gives each GPU in this process.

nvidia-smi counts every GPU of the machine in the order of their slots. CUDA counts only those that
CUDA_VISIBLE_DEVICES lets through, in its order, and by default puts the one that it thinks fastest
first. Where these rules leave a doubt, the answer is "unknown": a wrong index blames a wrong GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from labkit.hardware.parts import Gpu, MigInstance

__all__ = ["with_cuda_indices"]

Part = TypeVar("Part", Gpu, MigInstance)

_ORDER_NOTE = (
    "CUDA may count these GPUs in another order than nvidia-smi, so their CUDA indices are unknown."
    " Set CUDA_DEVICE_ORDER=PCI_BUS_ID before TensorFlow starts to make both orders the same."
)
_DUPLICATE_NOTE = (
    "CUDA_VISIBLE_DEVICES={value!r} names a device twice; CUDA then shows no device at all. "
    "Name each once."
)
_MIXED_NOTE = (
    "CUDA_VISIBLE_DEVICES={value!r} is not a plain list of numbers or of UUIDs, so labkit cannot "
    "tell which GPUs CUDA shows. Write it as 0,1 or as GPU-..., as `nvidia-smi -L` prints them."
)
_MIG_NOTE = (
    "Where MIG is on, numbers do not tell which instance CUDA uses. "
    "Set CUDA_VISIBLE_DEVICES to the UUID of one instance, as `nvidia-smi -L` prints it."
)
_ASK_NOTE = "Some GPUs do not tell their UUID or slot, so CUDA indices are unknown."


@dataclass(frozen=True)
class _Order:
    """UUIDs in CUDA's order; None where nothing can be said."""

    uuids: tuple[str, ...] | None
    note: str | None = None


def with_cuda_indices(
    gpus: Sequence[Gpu], environment: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The same GPUs with their CUDA index filled in, and what there is to say about it."""
    order = _order(gpus, environment)
    filled = tuple(
        replace(
            _numbered(gpu, order),
            instances=tuple(_numbered(instance, order) for instance in gpu.instances),
        )
        for gpu in gpus
    )
    return filled, (order.note,) if order.note and gpus else ()


def _numbered(part: Part, order: _Order) -> Part:
    if order.uuids is None or (part.uuid is None and order.uuids):
        return replace(part, cuda="unknown", cuda_index=None)
    if part.uuid not in order.uuids:
        return replace(part, cuda="hidden", cuda_index=None)
    return replace(part, cuda="visible", cuda_index=order.uuids.index(part.uuid))


def _order(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> _Order:
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return _counted(gpus, environment)
    tokens = [token.strip() for token in value.split(",")]
    if tokens[0] in ("", "NoDevFiles") or _negative(tokens[0]):
        return _Order(())
    if tokens[0].startswith("MIG-"):
        return _instance(gpus, tokens[0])
    if tokens[0].startswith("GPU-"):
        return _by_uuid(gpus, tokens, value)
    return _by_number(gpus, environment, tokens, value)


def _counted(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> _Order:
    """All GPUs in CUDA's own order."""
    if any(gpu.mig == "on" for gpu in gpus):
        return _Order(None, _MIG_NOTE)
    known = [(gpu.pci, gpu.uuid) for gpu in gpus if gpu.pci and gpu.uuid]
    if len(known) < len(gpus):
        return _Order(None, _ASK_NOTE)
    if len(gpus) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return _Order(None, _ORDER_NOTE)
    return _Order(tuple(uuid for _, uuid in sorted(known)))


def _by_number(
    gpus: Sequence[Gpu], environment: Mapping[str, str], tokens: list[str], value: str
) -> _Order:
    everything = _counted(gpus, environment)
    chosen: list[int] = []
    for token in tokens:
        if _negative(token) or (token.isdecimal() and int(token) >= len(gpus)):
            break  # CUDA stops at the first number that names no device
        if not token.isdecimal():
            return _Order(None, _MIXED_NOTE.format(value=value))
        chosen.append(int(token))
    if len(set(chosen)) < len(chosen):
        return _Order((), _DUPLICATE_NOTE.format(value=value))
    if everything.uuids is None:
        return everything
    return _Order(tuple(everything.uuids[number] for number in chosen))


def _by_uuid(gpus: Sequence[Gpu], tokens: list[str], value: str) -> _Order:
    if any(gpu.uuid is None for gpu in gpus):
        return _Order(None, _ASK_NOTE)
    chosen: list[str] = []
    for token in tokens:
        if not token.startswith("GPU-"):
            return _Order(None, _MIXED_NOTE.format(value=value))
        # The beginning of a UUID is enough for CUDA, as long as only one GPU has it.
        meant = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower().startswith(token.lower())]
        if len(meant) != 1:
            break
        if meant[0].mig == "on":
            return _Order(None, _MIG_NOTE)
        chosen.append(meant[0].uuid or "")
    if len(set(chosen)) < len(chosen):
        return _Order((), _DUPLICATE_NOTE.format(value=value))
    return _Order(tuple(chosen))


def _instance(gpus: Sequence[Gpu], token: str) -> _Order:
    """CUDA shows one MIG instance to a process: the first that is named."""
    uuids = [i.uuid for gpu in gpus for i in gpu.instances if i.uuid and i.uuid.startswith(token)]
    if len(uuids) == 1:
        return _Order((uuids[0],))
    if any(gpu.mig == "unknown" for gpu in gpus) or re.fullmatch(r"MIG-GPU-.+/\d+/\d+", token):
        # The older form counts instances by their place, which drivers of today do not print.
        return _Order(None, _MIG_NOTE)
    return _Order(())


def _negative(token: str) -> bool:
    return re.fullmatch(r"-\d+", token) is not None
