"""For all tests: slow files first, few measuring rounds. For notebooks: what nbval does not do.

nbval waits for a reply as long as its cell timeout says (2000 s), even when the kernel is dead.
Here a dead kernel is a failure within a second, a cell has 15 minutes, a notebook that never ran is
a failure, and every process of a kernel ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any
from unittest import mock

import pytest
from jupyter_client.provisioning import local_provisioner
from nbval import plugin as nbval_plugin
from nbval.kernel import RunningKernel

from labkit import kernel
from labkit.cluster.links.namespaces import private_network_refused
from labkit.hardware.machine import read_cores, read_memory
from labkit.publish import CELL_SECONDS
from tests import warm_kernel

ROOT = Path(__file__).parent
collect_ignore = ["notebooks/glossary.ipynb"]  # it has no code
# In the order of their seconds, so that no process is left with a long file at the end.
SLOWEST_FIRST = (
    "tests/browser/test_notebooks_in_lab.py",
    "tests/kit/test_slides.py",
    "tests/kit/test_website.py",
    "tests/kit/test_grade.py",
    "tests/kit/test_nbgrader.py",
    "notebooks/17_precision_and_xla.ipynb",
    "tests/exercises/test_tasks.py",
    "tests/exercises/test_slips.py",
    "tests/test_readme.py",
    "notebooks/18_limits_of_scaling.ipynb",
    "notebooks/37_input_pipelines.ipynb",
    "notebooks/38_why_is_mine_slow.ipynb",
    "notebooks/19_profilers.ipynb",
    "notebooks/32_several_workers.ipynb",
    "notebooks/33_data_and_checkpoints.ipynb",
    "notebooks/34_parameter_servers.ipynb",
    "notebooks/13_scaling.ipynb",
    "tests/cluster/test_frameworks.py",
    "notebooks/60_horovod.ipynb",
    "notebooks/50_ddp_by_hand.ipynb",
    "notebooks/51_training_loop.ipynb",
    "notebooks/52_is_it_faster.ipynb",
    "notebooks/53_several_nodes.ipynb",
    "notebooks/54_sharding.ipynb",
    "notebooks/55_tensor_and_pipeline.ipynb",
    "tests/exercises/test_pytorch.py",
    "tests/exercises/test_horovod.py",
    "notebooks/61_federated_learning.ipynb",
    "notebooks/62_federated_with_flower.ipynb",
    "tests/exercises/test_training_loops.py",
    "tests/pipelines/test_training.py",
    "notebooks/14_what_went_wrong.ipynb",
    "tests/strategies/test_table.py",
    "tests/test_take_home_programs.py",
    "tests/strategies/test_drills.py",
    "tests/test_environments.py",
    "notebooks/15_utilisation_and_energy.ipynb",
    "notebooks/11_one_device.ipynb",
    "notebooks/45_very_large_systems.ipynb",
    "tests/exercises/test_model_functions.py",
    "tests/test_nbval_guard.py",
    "notebooks/40_pipelines.ipynb",
    "notebooks/46_long_sequences.ipynb",
    "notebooks/47_experts.ipynb",
    "notebooks/49_fewer_messages.ipynb",
    "notebooks/48_fewer_bits.ipynb",
    "notebooks/44_memory.ipynb",
    "notebooks/41_transformer.ipynb",
    "tests/exercises/test_layer_programs.py",
    "notebooks/31_stale_gradients.ipynb",
    "notebooks/36_queues.ipynb",
    "notebooks/capstone.ipynb",
    "notebooks/12_mirrored_strategy.ipynb",
    "notebooks/30_sync_and_async.ipynb",
    "notebooks/35_on_a_cluster.ipynb",
    "notebooks/22_ring_all_reduce.ipynb",
    "notebooks/23_all_reduce_in_practice.ipynb",
    "tests/hardware/test_tensorflow.py",
    "tests/datasets/test_datasets.py",
    "tests/cluster/test_engines.py",
    "tests/test_checks.py",
    "tests/test_doctor.py",
    "tests/test_images.py",
    "tests/collectives/test_errors.py",
    "tests/collectives/test_bench.py",
    "tests/cluster/test_slurm.py",
    "tests/cluster/test_failures.py",
    "tests/telemetry/test_panel.py",
)
# After its time a cell is interrupted; so long may its outputs still be on their way.
GRACE_SECONDS = 10.0
NBVAL_DEFAULT_SECONDS = 2000

# A script's background job (`make test &`, nohup) inherits an ignored SIGINT, and so would every
# kernel and rank that is started here: then tests of Ctrl-C would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected: what is imported for them is never garbage

# Under test fewer rounds are measured, in every process that is started here, too.
os.environ.setdefault("LABKIT_ROUNDS", "1")

# glibc gives TensorFlow's memory back to the system after each step and asks for it again: up to a
# third of the CPU seconds of a lecture, in seven million page faults. Processes under test keep it.
for name, size in (("MMAP_THRESHOLD", 2**25), ("TRIM_THRESHOLD", 2**29), ("TOP_PAD", 2**26)):
    os.environ.setdefault(f"MALLOC_{name}_", str(size))

# NumPy's threads of three processes of pytest would wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Where Linux refuses ranks a network of their own (in many containers), tests share the machine's.
if private_network_refused():
    os.environ.setdefault("LABKIT_NETWORK", "shared")


class KernelDied(Exception):
    """The process that ran the cells is gone."""


class WatchedKernel(RunningKernel):
    """nbval's kernel, asked every second whether it is still alive, and ended with its children."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._group: int | None = None
        self._ready = False
        # A private IPYTHONDIR: somebody's start-up files are no part of the notebook.
        self._own = tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True)
        # Cells write into a copy of the folder: nothing is left beside the notebook.
        folder, left_out = f"{self._own.name}/notebooks", shutil.ignore_patterns(".*")
        options["cwd"] = shutil.copytree(options["cwd"], folder, ignore=left_out)
        told = {"LABKIT_PROGRESS": "off", "LABKIT_PICTURES": "still", "IPYTHONDIR": self._own.name}
        kept = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
        try:
            with (
                mock.patch.dict(os.environ, {**kept, **told}, clear=True),
                mock.patch.object(local_provisioner, "launch_kernel", warm_kernel.launch),
            ):
                super().__init__(*args, **options)
        finally:
            provisioner = getattr(getattr(self, "km", None), "provisioner", None)
            self._group = getattr(provisioner, "pgid", None)
            if not self._ready:  # a start that failed half-way has left a process
                self.stop()

    def _ensure_iopub_up(self) -> None:
        super()._ensure_iopub_up()
        self._ready = True

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        limit = float("inf") if timeout is None else timeout
        deadline = time.monotonic() + limit
        while (left := deadline - time.monotonic()) > 0:
            try:
                super().await_reply(msg_id, timeout=min(1.0, left))
            except Empty:
                if not self.is_alive():
                    raise KernelDied(self._obituary()) from None
            else:
                return
        raise Empty

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            super().stop()
        vars(self).pop("km", None)
        self.end_children()
        self._own.cleanup()

    def end_children(self) -> None:
        """End what the cells have started: it shares the kernel's process group, which is ours."""
        if self._group and self._group != os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)
            # What MPI, killed with its kernel, has left; a kernel leads its group.
            Path(f"/dev/shm/mpich_shm_{self._group:x}_0").unlink(missing_ok=True)
        self._group = None

    def _obituary(self) -> str:
        process = getattr(self.km.provisioner, "process", None)
        status = process.poll() if process is not None else None
        if status == -signal.SIGKILL:
            return (
                "The kernel was killed while this cell ran (SIGKILL): most often the machine was "
                "out of memory. Close other programs, or make the cell smaller."
            )
        return f"The kernel died while this cell ran (exit status {status})."


class Lecture(nbval_plugin.IPyNbFile):  # type: ignore[misc]
    """A notebook under test, on a kernel that is watched."""

    def setup(self) -> None:
        current = self.config.option.nbval_current_env
        if self.nb.metadata.get("kernelspec", {}).get("name") == kernel.SPEC["name"]:
            if current and (why := kernel.missing("torch")):
                pytest.skip(f"{self.path.name} is for {kernel.SPEC['display_name']}. {why}")
            current = False  # but the one that the notebook names
        with (
            mock.patch.object(self.config.option, "nbval_current_env", current),
            mock.patch.object(nbval_plugin, "RunningKernel", WatchedKernel),
        ):
            super().setup()

    def collect(self) -> Iterator[pytest.Item]:
        try:
            cells = list(super().collect())
        except Exception as fault:
            raise self.CollectError(f"{self.path.name} is no notebook: {fault}") from fault
        if not any(cell.cell.source.strip() and not cell.options["skip"] for cell in cells):
            raise self.CollectError(f"{self.path.name} has no code cell that would be run")
        self.skip_compare += ("text/html",)  # the same as text/plain, with a card's attributes
        for cell in cells:
            cell.output_timeout = GRACE_SECONDS
        yield from cells

    def teardown(self) -> None:
        if self.kernel is not None:
            self.kernel.stop()
            self.kernel = None


def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores, since tests also wait; each may take 1.3 GB."""
    return max(1, min(read_cores().usable + 1, int(read_memory().available / 1.3e9), 16))


def pytest_configure(config: pytest.Config) -> None:
    """Give nbval its guards, from whatever folder and with whatever options it is called."""
    option = config.option
    if getattr(option, "numprocesses", None) and sys.platform == "linux":
        warm_kernel.start()  # one for all processes of pytest
    if option.nbval_kernel_name is None:
        option.nbval_current_env = True
    if option.nbval_sanitize_with is None:
        option.nbval_sanitize_with = str(ROOT / "tests" / "nbval_sanitize.cfg")
    if option.nbval_cell_timeout == NBVAL_DEFAULT_SECONDS:
        option.nbval_cell_timeout = CELL_SECONDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the slowest files to the front; all others keep their order."""
    places = {ROOT / name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Collect garbage from now on, among what the tests themselves make."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Iterator[None]:
    """Put a watched notebook in the place of nbval's own."""
    found = yield
    return [  # type: ignore[return-value]
        Lecture.from_parent(parent, path=file_path)
        if isinstance(one, nbval_plugin.IPyNbFile)
        else one
        for one in found  # type: ignore[attr-defined]
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A cell that was committed without having run proves nothing, so it fails."""
    if not isinstance(item, nbval_plugin.IPyNbCell) or item.options["skip"]:
        return
    if item.cell.source.strip() and item.cell.execution_count is None:
        pytest.fail(
            "It was saved without having run: `make notebooks` runs and saves it.", pytrace=False
        )
