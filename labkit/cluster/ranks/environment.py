"""The environment of a rank: its number, the addresses of all ranks, its cores and GPUs."""

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from labkit.arguments import one_of, whole
from labkit.cluster.links.network import INTERFACE, Network
from labkit.cluster.ranks.protocol import Addresses
from labkit.cluster.ranks.tf_config import ROLES
from labkit.kinds import LabError
from labkit.mpi.run import loopback

MOST = 64
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
INTERFACES = ("GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def roles_of(ranks: int | None, roles: Mapping[str, int] | None) -> tuple[str, ...]:
    """Returns the role of each rank, in the order of `roles`. By default all ranks are workers."""
    if roles is None:
        return ("worker",) * whole("ranks", 2 if ranks is None else ranks, at_least=1, at_most=MOST)
    found: list[str] = []
    for role, count in roles.items():
        one_of("a role", role, ROLES)
        most = 1 if role == "chief" else MOST
        found += [role] * whole(f"roles[{role!r}]", count, at_least=1, at_most=most)
    if ranks not in (None, len(found)) or not found:
        raise LabError(f"roles={dict(roles)} are {len(found)} ranks, but ranks={ranks}.")
    return tuple(found)


def rank_environment(roles: Sequence[str], addresses: Addresses, rank: int) -> dict[str, str]:
    """Returns the variables that a rank has under every engine.

    >>> where = Addresses(("a:1", "b:2"), "a:3")
    >>> rank_environment(("chief", "worker"), where, 1)["TF_CONFIG"]
    '{"cluster": {"chief": ["a:1"], "worker": ["b:2"]}, "task": {"type": "worker", "index": 0}}'
    """
    host, _, port = addresses.master.rpartition(":")
    cluster: dict[str, list[str]] = {}
    for role, address in zip(roles, addresses.ranks, strict=True):
        cluster.setdefault(role, []).append(address)
    task = {"type": roles[rank], "index": list(roles[:rank]).count(roles[rank])}
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(roles)),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
        # The port of a rank is held until its program takes it; so it may be shared with itself.
        "TF_GRPC_REUSE_PORT": "1",
        "PYTHONUNBUFFERED": "1",
    }


def local_variables(ranks: int, rank: int, links: Network | None = None) -> dict[str, str | None]:
    """Returns further variables of a rank of this machine: its cores, GPUs and interfaces."""
    hosts = [0] * ranks if links is None else links.hosts
    local, here = hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])
    found: dict[str, str | None] = {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(here)}
    found |= dict.fromkeys(INTERFACES, loopback() if links is None else INTERFACE)
    if links is not None:  # gRPC would ask a proxy for the hosts, which no proxy can reach
        found |= dict.fromkeys(("grpc_proxy", "https_proxy", "http_proxy"))
    # A program may name mpi4py's constants; MPI itself would make each rank a world of its own.
    found["MPI4PY_RC_INITIALIZE"] = "0"
    cores = str(max(1, _usable_cores() // ranks))
    found |= {name: cores for name in THREADS if name not in os.environ}
    if gpus() and (ranks > 1 or links):
        # A GPU for each rank, so that a worker is one replica on every machine. A single rank may
        # be a launcher, which wants all GPUs.
        found["CUDA_VISIBLE_DEVICES"] = "" if on_cpus(ranks, links) else gpus()[rank]
    return found


def on_cpus(ranks: int, links: Network | None) -> bool:
    """Whether ranks get no GPU: NCCL refuses two ranks on a GPU, and would bypass the links."""
    return links is not None or ranks > len(gpus())


def set_threads() -> None:
    """Make loaded libraries use the number of threads that the environment asks for now.

    OpenBLAS and torch read it when they are imported, which the fork server did long ago.
    """
    words = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    wanted = next((int(word) for word in words if word.isdigit() and int(word) > 0), 0)
    if wanted and "numpy" in sys.modules:
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(_openblas())
            if library.scipy_openblas_get_num_threads64_() != wanted:  # setting it makes threads
                library.scipy_openblas_set_num_threads64_(wanted)
    if wanted and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(wanted)


@cache
def _openblas() -> str:
    """The file of NumPy's own OpenBLAS."""
    package = Path(sys.modules["numpy"].__file__ or "").parent
    folders = (package.parent / "numpy.libs", package / ".dylibs")
    return next((str(file) for folder in folders for file in folder.glob("*openblas*")), "")


@cache
def _usable_cores() -> int:
    # Once: a container's limits are files, and reading them takes as long as starting ranks.
    from labkit.hardware.machine import read_cores

    return read_cores().usable


@cache
def gpus() -> tuple[str, ...]:
    """Returns the GPUs that programs may use, or () if one of them has no UUID."""
    from labkit.hardware.gpus import read_gpus

    found = [gpu for gpu in read_gpus().gpus if gpu.visible is not False]
    names = tuple(gpu.uuid for gpu in found if gpu.visible and gpu.uuid is not None)
    return names if len(names) == len(found) else ()
