"""The cases of `labkit explain`: answers.json, programs and fixes belong together."""

import ast
import json
import shutil
import subprocess
from pathlib import Path

import pytest

CASES = Path(__file__).parent.parent / "benchmarks/explain_cases"
ANSWERS = json.loads((CASES / "answers.json").read_text(encoding="utf-8"))


def test_each_program_has_an_answer_and_each_kind_is_there():
    assert set(ANSWERS) == {one.stem for one in CASES.glob("*_*.py")}
    kinds = [one["kind"] for one in ANSWERS.values()]
    assert kinds.count("planted") >= 22
    assert kinds.count("clean") >= 8
    assert kinds.count("wrong") >= 4


@pytest.mark.parametrize("name", ANSWERS)
def test_a_case_has_its_line_and_its_fix(name, tmp_path):
    answer = ANSWERS[name]
    source = (CASES / f"{name}.py").read_text(encoding="utf-8")
    fix = CASES / f"{name}.fix.diff"
    assert "labkit" not in source
    assert fix.exists() == ("cause" in answer) == (answer["kind"] != "clean")
    if answer["kind"] == "clean":
        return
    assert source.count(answer["line"]) == 1
    if not shutil.which("git"):
        pytest.skip("no git to apply the fix")
    for file in CASES.glob(f"{name}.*"):
        shutil.copy(file, tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=60)
    subprocess.run(["git", "apply", "-p1", fix], cwd=tmp_path, check=True, timeout=60)
    fixed = (tmp_path / f"{name}.py").read_text(encoding="utf-8")
    ast.parse(fixed)
    changed = [one for one in CASES.glob(f"{name}.*") if one.suffix in (".py", ".toml")]
    assert any((tmp_path / one.name).read_bytes() != one.read_bytes() for one in changed)
