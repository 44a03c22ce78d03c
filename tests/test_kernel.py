"""The kernel labkit · PyTorch: installed, on its environment or the course's Python, and warm."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from nbformat.v4 import new_code_cell, new_notebook, new_output

import labkit
from labkit import environments, kernel
from labkit.contents import Contents
from labkit.plain import write
from tests.kernels import Kernel, fault_of, text_of

ROOT = Path(labkit.__file__).parent.parent
BUILT_WITH = "{}.{}.99".format(*sys.version_info)
EXTENSION = "--IPKernelApp.extra_extensions=labkit.kernel"
WITHOUT_TENSORFLOW = """
import sys

sys.modules["tensorflow"] = sys.modules["keras"] = None  # as in an environment without them
import numpy as np
import labkit

panel = labkit.panel()
with panel.span("work"):
    labkit.compare({"one": lambda: sum(range(9)), "two": lambda: sum(range(8))}, rounds=3)
print(panel.table())
labkit.predict("seconds", unit="s")
trace = labkit.collectives.run(labkit.collectives.programs.ring_all_reduce, ranks=4)
trace._repr_mimebundle_()
trace.picture(latency=5e-6, bandwidth=1e10)
labkit.hardware()
labkit.picture("torch_data_parallel")
labkit.memory.transformer
labkit.check("50.buckets", lambda parameters, first, cap: [])
labkit.hint("50.buckets")
labkit.my_progress()
labkit.course(sys.argv[1])
with labkit.cluster(ranks=2, network="shared") as c:
    assert c.run(abs) == [0, 1]
try:
    labkit.replicas(2)
except labkit.LabError as fault:
    assert "make lab" not in str(fault), fault
else:
    raise AssertionError("replicas(2) needs no TensorFlow?")
"""


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """An environment torch in a folder of its own, not built."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    folder = tmp_path / "torch"
    folder.mkdir()
    for name in ("environment.toml", "lock.txt"):
        (folder / name).write_bytes((ROOT / "environments" / "torch" / name).read_bytes())
    return environments.find("torch")


def build(torch, recipe=None):
    (torch.venv / "bin").mkdir(parents=True)
    torch.python.symlink_to(sys.executable)
    versions = {"torch": "2.13.0"}
    recipe = recipe or torch.recipe
    stamp = environments.Stamp(str(torch.folder), recipe, BUILT_WITH, versions, 10)
    write(torch.venv / "labkit.json", stamp)


def launched(monkeypatch):
    """The program that the kernelspec's command becomes, its words, and what it is told."""
    seen = []
    monkeypatch.setattr(os, "execv", lambda *what: seen.extend([*what, dict(os.environ)]))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    kernel.main("torch", "-f", "connection.json")
    return seen


def test_it_is_installed_beside_labkit_under_the_name_that_notebooks_have():
    found = KernelSpecManager().get_kernel_spec(kernel.SPEC["name"])
    there = json.loads((ROOT / "labkit" / "kernelspec" / "kernel.json").read_text("utf-8"))
    assert found.argv == there["argv"]
    assert found.display_name == kernel.SPEC["display_name"]
    assert found.argv[0] == "python"  # which Jupyter takes for its own


def test_it_is_the_environments_python_where_that_is_built(torch, monkeypatch):
    build(torch)
    python, words, told = launched(monkeypatch)
    assert python == str(torch.python)
    assert words[1:] == ["-m", "ipykernel_launcher", EXTENSION, "-f", "connection.json"]
    assert torch.variables.items() <= told.items()
    assert told["PATH"].startswith(str(torch.venv))
    assert kernel.MISSING not in told


@pytest.mark.parametrize("recipe", [None, "an older lock"])
def test_it_is_the_courses_python_where_it_is_not_built_or_has_other_packages(
    torch, monkeypatch, recipe
):
    if recipe:
        build(torch, recipe)
    python, words, told = launched(monkeypatch)
    assert python == words[0] == sys.executable
    assert "labkit env build torch" in told[kernel.MISSING]
    assert "LABKIT_KERNEL" not in told


def test_a_notebook_opens_with_the_version_of_the_python_that_it_gets(torch, tmp_path):
    notebook = new_notebook(metadata={"kernelspec": kernel.SPEC})
    nbformat.write(notebook, tmp_path / "one.ipynb")
    contents = Contents(root_dir=str(tmp_path))

    def version():
        model = asyncio.run(contents.get("one.ipynb"))
        return model["content"]["metadata"]["language_info"]["version"]

    assert version() == kernel.python_version("torch") != BUILT_WITH
    build(torch)
    assert version() == BUILT_WITH


def test_without_the_environment_the_first_cell_says_so_and_the_others_show_what_was_saved(
    tmp_path,
):
    figure = new_output("display_data", {"text/plain": "a figure"})
    lines = new_output("stream", text="loss 0.5\n")
    saved = new_code_cell("import no_torch", id="saved", outputs=[lines, figure])
    nbformat.write(new_notebook(cells=[saved]), tmp_path / "lecture.ipynb")
    variables = {kernel.MISSING: "It is not built.", "JPY_SESSION_NAME": "lecture.ipynb"}
    started = Kernel(EXTENSION, cwd=tmp_path, **variables)
    try:
        assert text_of(started.run("print('one')")) == "It is not built.\none\n"
        assert text_of(started.run("print('two')")) == "two\n"
        shown = started.run("import no_torch", cell="saved")
        assert fault_of(shown) is None
        assert text_of(shown).endswith("loss 0.5\na figure")
        reply = started.client.get_shell_msg(timeout=60)
        while reply["parent_header"].get("msg_id") != started.request:
            reply = started.client.get_shell_msg(timeout=60)
        assert reply["content"]["status"] == "ok"  # else Jupyter drops the cells that wait
        assert fault_of(started.run("import no_torch  # changed", cell="saved")) is not None
    finally:
        started.close()


def test_the_first_cell_warms_the_ranks():
    started = Kernel(EXTENSION)
    try:
        started.run("from labkit import kernel; kernel.WARM = ('wave',)")
        ask = "with labkit.cluster(ranks=1) as c: print(c.run(lambda rank: 'wave' in sys.modules))"
        assert text_of(started.run(f"import sys, labkit\n{ask}")) == "[True]\n"
    finally:
        started.close()


def test_nothing_that_this_kernel_can_do_loads_tensorflow(tmp_path):
    environment = {**os.environ, "LABKIT_KERNEL": "torch", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, ROOT / "notebooks"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_its_packages_are_those_of_the_lab():
    """Widgets of another anywidget are not shown, without an error in the notebook."""
    pins = {}
    for lock in (ROOT / "requirements" / "lab.txt", ROOT / "environments" / "torch" / "lock.txt"):
        pins[lock.stem] = dict(
            re.findall(r"^([\w.-]+)==([\w.]+)", lock.read_text("utf-8"), re.MULTILINE)
        )
    both = pins["lab"].keys() & pins["lock"].keys() - {"setuptools"}
    assert {"anywidget", "ipywidgets", "ipykernel"} <= both
    assert {name: pins["lab"][name] for name in both} == {name: pins["lock"][name] for name in both}
