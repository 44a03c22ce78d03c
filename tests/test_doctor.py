"""labkit doctor: a line for every check, whatever the check does."""

import textwrap
from types import SimpleNamespace

import pytest

from labkit import doctor
from labkit.cluster.links import namespaces
from labkit.doctor import Check
from labkit.hardware import gpus

GOOD = "return CheckResult('pass', 'all is well')"
WARN = "return CheckResult('warn', 'nearly', 'read it')"
FAIL = "return CheckResult('fail', 'broken', 'fix it')"


@pytest.fixture
def checks(tmp_path, monkeypatch):
    """Checks of the test's own: a module that the checks' processes can load."""

    def checks(**programs):
        lines = ["import os, sys, time", "from labkit.doctor import CheckResult"]
        for name, program in programs.items():
            lines.append(f"def {name}():\n{textwrap.indent(textwrap.dedent(program), '    ')}")
        (tmp_path / "own_checks.py").write_text("\n".join(lines))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        return tuple(Check(name, f"own_checks:{name}", seconds=20) for name in programs)

    return checks


@pytest.mark.parametrize(("programs", "code"), [((GOOD, WARN), 0), ((GOOD, WARN, FAIL), 1)])
def test_the_report_and_the_exit_code(checks, monkeypatch, capsys, programs, code):
    own = checks(**dict(zip("abc", programs, strict=False)))
    monkeypatch.setattr(doctor, "CHECKS", own)
    assert doctor.main() == code
    shown = capsys.readouterr().out
    assert ("Not ready" in shown) == bool(code)
    assert shown.count("do:") == len(programs) - 1
    assert shown.startswith("pass  a")
    assert "all is well" in shown


def test_a_check_that_raises_crashes_hangs_or_prints_costs_one_line(checks):
    own = checks(
        raises="raise ValueError('odd\\nmachine')",
        refuses="from labkit import LabError; raise LabError('TensorFlow is missing.')",
        leaves="sys.exit('I leave')",
        crashes="os.write(2, b'bad luck\\n'); os.abort()",
        prints=f"print('noise', flush=True); os.write(2, b'x' * 300_000); {GOOD}",
        hangs="time.sleep(600)",
    )
    own = [*own[:-1], Check("hangs", own[-1].function, 2), Check("nowhere", "no_module:x")]
    found = {check.name: doctor.examine(check) for check in own}
    words = {"raises": "odd machine", "refuses": "TensorFlow is missing.", "leaves": "I leave",
             "crashes": "bad luck", "nowhere": "no_module", "hangs": ""}  # fmt: skip
    assert all(text in found[name].found for name, text in words.items())
    assert found.pop("prints").status == "pass"
    assert all(line.status == "fail" and line.do for line in found.values())


def test_every_check_answers_here():
    """On this machine, whatever it has: no check fails by itself."""
    checks = [check for check in doctor.CHECKS if check.name != "TensorFlow"]
    found = {check.name: doctor.examine(check) for check in checks}
    found["TensorFlow"] = doctor.check_tensorflow()  # here it is loaded already
    assert all(line.do for line in found.values() if line.status != "pass")
    assert found["TensorFlow"].status != "fail", found["TensorFlow"]
    assert "Error" not in "".join(line.found for line in found.values() if line.status == "fail")
    refused = namespaces.private_network_refused()
    assert found["Ranks"].status == ("warn" if refused else "pass")
    assert not refused or refused in found["Ranks"].found


@pytest.mark.parametrize(
    ("state", "notes", "names", "status"),
    [
        ("none", ("No NVIDIA driver.",), "", "pass"),
        ("broken", ("Different versions.",), "", "fail"),
        ("working", (), "", "warn"),
        ("working", ("GPU 1 is lost: ...",), "TT", "fail"),
    ],
)
def test_the_driver(monkeypatch, state, notes, names, status):
    found = tuple(SimpleNamespace(name=name) for name in names)
    monkeypatch.setattr(gpus, "read_gpus", lambda: gpus.Driver("580", state, found, notes))
    line = doctor.check_driver()
    assert line.status == status
    assert all(note in line.found for note in notes)


def test_data_is_looked_for_and_not_downloaded(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    line = doctor.check_data()
    assert line.status == "warn"
    assert "labkit.datasets.mnist()" in line.do
    assert doctor.check_disk().status in ("pass", "warn")
    assert list(tmp_path.iterdir()) == []
