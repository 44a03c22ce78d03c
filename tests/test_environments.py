"""Environments beside the course, with one that has no packages: listed, built, used, removed."""

import errno
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

import labkit
from labkit import cli, environments
from labkit.cluster.ranks.recorded import RecordedRuns
from labkit.kinds import LabError

ROOT = Path(labkit.__file__).parent.parent
TOML = """
about = "Nothing but Python"
pythons = ["{python}"]
shown = []
gigabytes = {{ download = 0, disk = 0.05 }}
minutes = 1
{more}
[variables]
SAME = "for all"

[rank_variables]
WHO = "{{rank}} of {{ranks}}"
"""
WHEEL = """
import os, sys, zipfile

def build_wheel(folder, *_, name="tiny-1"):
    if "TINY_DIES" in os.environ:
        os.kill(os.getppid(), 9)
    with zipfile.ZipFile(f"{folder}/{name}-py3-none-any.whl", "w") as wheel:
        info, (called, version) = f"{name}.dist-info", name.split("-")
        about = f"Metadata-Version: 2.1\\nName: {called}\\nVersion: {version}\\n"
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr("tiny.py", f"FLAGS = {os.environ.get('MAKEFLAGS')!r}\\n")
    return wheel.filename.rpartition("/")[2]
"""  # of a package: builds itself without setuptools
NO_PACKAGE = f"no-such-package==1 --hash=sha256:{'0' * 64}\n"
# Where a build makes a virtual environment with pip, it gets the pip that is here.
OUR_PIP = """
import pathlib, pip
from labkit import environments

run = environments._run

def with_our_pip(chosen, purpose, command, **more):
    first = purpose == "make a virtual environment"
    run(chosen, purpose, [*command, *["--without-pip"] * first], **more)
    if first:
        [packages] = chosen.venv.glob("lib/python*/site-packages")
        (packages / "pip").symlink_to(pathlib.Path(pip.__file__).parent)

environments._run = with_our_pip
"""
CHECK = "import os; print('checked', os.environ['WHO'], os.environ['SAME'])\n"
HERE = "{}.{}".format(*sys.version_info)


@dataclass
class Recipe:
    folder: Path

    def write(self, python=HERE, more="", lock=""):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "environment.toml").write_text(TOML.format(python=python, more=more))
        (self.folder / "lock.txt").write_text(lock)
        (self.folder / "check.py").write_text(CHECK)

    @property
    def state(self):
        return environments.find("tiny").state


@pytest.fixture
def pip_is_ours(monkeypatch):
    pytest.importorskip("pip")
    monkeypatch.setattr(environments, "_run", environments._run)
    exec(OUR_PIP, {})


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    recipe = Recipe(tmp_path / "tiny")
    recipe.write()
    return recipe


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Built once; its tests only use it."""
    folder = tmp_path_factory.mktemp("environments")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environments, "FOLDER", folder)
        Recipe(folder / "tiny").write()
        assert cli.main(["env", "build", "tiny"]) == 0
        yield Recipe(folder / "tiny")


@pytest.fixture(scope="module")
def two(built):
    with labkit.cluster(ranks=2, environment="tiny") as c:
        yield c


def script(folder, text):
    file = folder / "train.py"
    file.write_text(text)
    return file


def test_the_course_has_three_environments_with_locks_that_name_no_index():
    known = environments.known()
    assert {"flower", "horovod", "torch"} <= set(known)
    for one in known.values():
        for lock in ["lock.txt", *filter(None, [one.compiled])]:
            text = (one.folder / lock).read_text()
            assert "--hash=sha256:" in text
            assert "://" not in text
            assert "--index" not in text
        compile((one.folder / "check.py").read_text(), "check.py", "exec")
        assert one.variables_of(1, ["a:1", "b:2"], "a:3")["PATH"].startswith(str(one.venv))


def test_a_build_says_what_it_costs_and_checks_two_ranks_and_is_removed(tiny, capfd):
    assert cli.main(["env", "list"]) == 0
    assert "tiny       not built" in capfd.readouterr().out
    for use in (lambda c: c.run(abs), lambda c: c.run_script(tiny.folder / "check.py")):
        with (
            labkit.cluster(environment="tiny") as c,
            pytest.raises(LabError, match="labkit env build tiny"),
        ):
            use(c)
    assert cli.main(["env", "build", "tiny"]) == 0
    out = capfd.readouterr().out
    assert out.index("on disk and about 1 minute") < out.index("make a virtual environment")
    assert "checked 0 of 2 for all" in out
    assert "checked 1 of 2 for all" in out
    assert tiny.state == "built"
    assert cli.main(["env", "build", "tiny"]) == 0
    assert "Nothing to do" in capfd.readouterr().out
    assert cli.main(["env", "list"]) == 0
    assert f"Python {HERE}" in capfd.readouterr().out
    tiny.write(lock="# a newer lock\n")
    assert tiny.state == "outdated"
    with labkit.cluster(environment="tiny"):
        assert "labkit env build tiny" in capfd.readouterr().out
    assert cli.main(["env", "remove", "tiny"]) == 0
    assert tiny.state == "not built"
    assert not (tiny.folder / ".venv").exists()
    assert cli.main(["env", "remove", "tiny"]) == 0


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"more": 'commands = ["no-such-compiler"]'}, "no-such-compiler must be installed"),
        ({"python": "3.2"}, "needs Python 3.2"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_installed(tiny, recipe, words):
    tiny.write(**recipe)
    with pytest.raises(LabError, match=words):
        environments.build("tiny", lambda _: None)
    assert tiny.state == "not built"


@pytest.mark.usefixtures("pip_is_ours")
def test_a_build_that_fails_or_is_interrupted_is_not_used_and_can_be_repeated(
    tiny, monkeypatch, capfd
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    tiny.write(lock=NO_PACKAGE)
    assert cli.main(["env", "build", "tiny"]) == 2
    fault = capfd.readouterr().err
    assert "could not install its lock" in fault
    assert "No matching distribution found for no-such-package" in fault
    assert "no-such-package" in (tiny.folder / ".venv" / "labkit.log").read_text()
    assert tiny.state == "incomplete"
    tiny.write()

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        environments.build("tiny", interrupted)
    assert tiny.state == "incomplete"
    environments.build("tiny", lambda _: None)
    assert tiny.state == "built"


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("shutil.rmtree", errno.ENOSPC, "No space left"),
        ("fcntl.flock", errno.EWOULDBLOCK, "Another process"),
        ("fcntl.flock", errno.ENOSYS, None),  # a file system that knows no locks will do
    ],
)
def test_a_full_disk_and_another_build_are_told(tiny, monkeypatch, function, code, words):
    def fails(*_, **__):
        raise OSError(code, os.strerror(code))

    (tiny.folder / ".venv").mkdir()
    monkeypatch.setattr(function, fails)
    with pytest.raises(LabError, match=words) if words else nullcontext():
        environments.build("tiny", lambda _: None)


def test_what_was_moved_or_damaged_is_not_built(tiny, tmp_path, monkeypatch, capfd):
    environments.build("tiny", lambda _: None)
    shutil.copytree(tmp_path, tmp_path / "clone", symlinks=True)
    (tiny.folder / ".venv" / "labkit.json").write_text('{"labkit": 1}')
    assert cli.main(["env", "list"]) == 0
    assert "tiny       incomplete" in capfd.readouterr().out
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "clone")
    assert tiny.state == "incomplete"


@pytest.mark.usefixtures("pip_is_ours")
def test_a_path_with_a_space_compiles_once_on_its_cores_and_an_interrupt_leaves_no_files(
    tiny, tmp_path, monkeypatch
):
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "a b")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spaced = Recipe(tmp_path / "a b" / "tiny")
    spaced.write(more='compiled = "compiled.txt"')
    (tmp_path / "backend.py").write_text(
        f'{WHEEL}\nassert " " not in sys.prefix + os.getcwd() + os.environ["TMPDIR"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny"\nversion = "1"\n'
    )
    file = spaced.folder / "tiny-1.tar.gz"
    with tarfile.open(file, "w:gz") as source:
        for name in ("backend.py", "pyproject.toml"):
            source.add(tmp_path / name, f"tiny-1/{name}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (spaced.folder / "compiled.txt").write_text(f"tiny @ {file.as_uri()} --hash=sha256:{digest}\n")
    before = {*tmp_path.iterdir()}
    monkeypatch.setenv("TINY_DIES", "1")
    with pytest.raises(LabError, match="could not compile"):
        environments.build("tiny", lambda _: None)
    monkeypatch.delenv("TINY_DIES")
    python = environments.build("tiny", lambda _: None).python
    assert {*tmp_path.iterdir()} == before
    flags = subprocess.check_output([python, "-c", "import tiny; print(tiny.FLAGS)"], text=True)
    assert 1 <= int(flags.removeprefix("-j")) <= os.cpu_count()
    monkeypatch.setenv("TINY_DIES", "1")  # the wheel of this recipe is in the user's cache
    environments.build("tiny", lambda _: None, again=True)
    spaced.write(more='compiled = "compiled.txt"', lock="# of another recipe\n")
    with pytest.raises(LabError, match="could not compile"):
        environments.build("tiny", lambda _: None)


@pytest.mark.usefixtures("pip_is_ours")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all builds are for CPUs")
def test_a_build_for_cpus_is_looked_for_before_anything_is_installed(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(environments.gpus, "read_gpus", lambda: SimpleNamespace(gpus=()))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    space = {}
    exec(WHEEL, space)
    more = 'unlocked = ["tiny==1"]\nindex = "LABKIT_TINY"'
    tiny.write(more=more, lock=NO_PACKAGE)
    space["build_wheel"](str(tmp_path), name="tiny-1")
    with pytest.raises(LabError, match="LABKIT_TINY=ADDRESS labkit env build tiny"):
        environments.build("tiny", lambda _: None)
    space["build_wheel"](str(tmp_path), name="tiny-1+cpu")
    tiny.write(more=more)
    environments.build("tiny", lambda _: None)


@pytest.mark.usefixtures("pip_is_ours")
def test_a_closed_terminal_ends_what_installs_as_ctrl_c_does(tiny):
    tiny.write(lock=NO_PACKAGE)
    program = (
        f"{OUR_PIP}import sys; from labkit import cli\n"
        f"environments.FOLDER = pathlib.Path({str(tiny.folder.parent)!r})\n"
        "sys.exit(cli.main(['env', 'build', 'tiny']))\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as index:  # an index that never answers
        address = f"http://127.0.0.1:{index.getsockname()[1]}"
        index.settimeout(300)
        env = {**os.environ, "PIP_INDEX_URL": address, "PIP_FIND_LINKS": "", "NO_PROXY": "*"}
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        building = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=env, **pipes)
        pip, _ = index.accept()
        pip.settimeout(60)
        building.send_signal(signal.SIGHUP)
        assert b"Stopped." in building.communicate(timeout=300)[1]
        assert building.returncode == 130
        while pip.recv(4096):
            pass  # what it asked for, then its end
        pip.close()
    assert tiny.state == "incomplete"


def test_a_script_runs_as_python_would_run_it(two, built, tmp_path, capfd):
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    file = script(
        tmp_path,
        "import json, os, sys, beside\n"
        "assert __name__ == '__main__'\n"
        "if len(sys.argv) > 2:\n"
        "    names = 'RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR WHO SAME'.split()\n"
        "    print(json.dumps([sys.argv, sys.prefix, beside.NAME, *map(os.environ.get, names)]))\n"
        "    sys.exit(0)\n",
    )
    outputs = two.run_script(file, "--epochs", 2, timeout=60)
    shown = capfd.readouterr().out
    for rank, text in enumerate(outputs):
        words = (str(file), "--epochs", "2", str(built.folder / ".venv"), "beside", f"{rank} of 2")
        assert all(f'"{word}"' in text for word in words), text
        assert f'"{rank}", "{rank}", "2", "127.0.0.1", "{rank} of 2", "for all"' in text
        assert f"rank {rank}: [" in shown
    assert two.run_script(file) == ["", ""]
    with pytest.raises(LabError, match="no file"):
        two.run_script(tmp_path / "other.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('too large')", "raised ValueError: too large, in line 3"),
        ("1 +", "SyntaxError"),
    ],
)
def test_a_rank_that_fails_ends_the_script_and_is_named(two, tmp_path, text, words):
    file = script(
        tmp_path,
        f"import os, sys, threading\nif os.environ['RANK'] == '1':\n    {text}\n"
        "threading.Event().wait()\n",
    )
    with pytest.raises(LabError, match=words) as caught:
        two.run_script(file)
    assert str(caught.value).startswith("Rank ") or text == "1 +"
    assert set(caught.value.errors) == {0, 1}


def test_a_recorded_run_is_shown_where_the_environment_is_not_built(
    two, built, tmp_path, monkeypatch, capfd
):
    text = "import os, sys\nprint(os.environ['RANK'], *sys.argv[1:], __file__, sys.executable)\n"
    file = script(tmp_path, text)
    launcher = built.folder / ".venv" / "bin" / "run_it"
    launcher.write_text("import runpy, sys\nrunpy.run_path(sys.argv[1])\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_RECORD", "1")
    for arguments in (("--steps", 2), ("--steps", 3), ("--steps", 3)):
        outputs = two.run_script(file, *arguments)
    assert two.run_script("run_it", "train.py")[1].startswith("1 train.py")
    monkeypatch.delenv("LABKIT_RECORD")
    two.run_script(file, "--steps", 4)

    recorded = tmp_path / "recordings" / "train.json"
    assert len(RecordedRuns.of(file).runs) == 2
    assert not any(str(path) in recorded.read_text() for path in (tmp_path, built.folder))
    stamp = built.folder / ".venv" / "labkit.json"
    stamp.rename(stamp.with_suffix(".hidden"))
    try:
        with labkit.cluster(ranks=2, environment="tiny") as c:
            capfd.readouterr()
            for rank, words in enumerate(c.run_script("train.py", "--steps", 3)):
                assert words.split() == [str(rank), "--steps", "3", "train.py", "bin/python"]
                assert words.split()[:3] == outputs[rank].split()[:3]
                assert words == c.output(rank)
            shown = capfd.readouterr().out
            assert "labkit env build tiny" in shown
            assert f"recorded on {labkit.hardware.machine_text()}, Python {HERE}" in shown
            assert "rank 1: 1 --steps 3" in shown
            assert len(c.run_script("run_it", "train.py", show=False)) == 2
            script(tmp_path, text + "\n")
            for other in ((file, "--steps", "2"), ("run_it", "train.py")):
                with pytest.raises(LabError, match="it has been edited"):
                    c.run_script(*other)
            with pytest.raises(LabError, match=r"labkit env build tiny.*Nothing is recorded"):
                c.run_script("train.py", "--steps", 4)
    finally:
        stamp.with_suffix(".hidden").rename(stamp)


def exits_on_rank_1(rank, code):
    if rank:
        sys.exit(code)


def test_a_function_goes_to_another_python_version_as_its_source(two, built):
    stamp = built.folder / ".venv" / "labkit.json"
    text = stamp.read_text()
    stamp.write_text(text.replace(f'"{HERE}.', '"3.2.'))
    outside = 5

    def uses_outside(rank):
        return rank + outside

    try:
        line = exits_on_rank_1.__code__.co_firstlineno + 2
        with pytest.raises(LabError, match=f"Rank 1 raised SystemExit: 7, in line {line} of exits"):
            two.run(exits_on_rank_1, 7)
        assert two.run(exits_on_rank_1, 0) == [None, None]
        for program in (print, lambda rank: rank):
            with pytest.raises(LabError, match=r"no source .* c\.run_script"):
                two.run(program)
        with pytest.raises(LabError, match=r"uses outside .* c\.run_script"):
            two.run(uses_outside)
    finally:
        stamp.write_text(text)
    assert two.run(print) == [None, None]
