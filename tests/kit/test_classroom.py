"""A class guesses: 200 kernels at once, a server that is killed, and the lecturer's page."""

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

import labkit
from labkit.kit.classroom import FILE

STUDENT = re.compile(r"every student:  labkit\.join\(\"http://[^/:]+(:\d+/\w+)\"\)")
WHAT = "speed-up of 2 replicas"
LECTURER = re.compile(r"In a cell of yours: +labkit\.join\(\"(http://\S+)\"\)")


class Served:
    """`labkit class` in a folder, as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "labkit.cli", "class", "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        said = "".join(self.process.stdout.readline() for _ in range(4))
        self.student = f"http://127.0.0.1{STUDENT.search(said)[1]}"
        self.lecturer = LECTURER.search(said)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def shown(self) -> list[dict]:
        with urllib.request.urlopen(f"{self.lecturer}/data", timeout=10) as answer:
            return json.load(answer)


def post(address: str, message: object) -> int:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    try:
        with urllib.request.urlopen(address, body, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.fixture
def served(tmp_path):
    served = Served(tmp_path)
    yield served
    served.kill()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setenv("LABKIT_CLASS", "")  # join sets it, and only for a test


def guess(who: object, number: float) -> dict[str, object]:
    return {"who": str(who), "what": "speed-up", "unit": "×", "guess": number}


def test_200_clients_at_once_are_counted_and_a_killed_class_goes_on_without_a_loss(served):
    codes, together = [], threading.Barrier(200)

    def client(number):
        together.wait()
        codes.append(post(served.student, guess(number, 1 + number / 100)))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(200)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert codes == [200] * 200
    before, addresses = served.shown(), (served.student, served.lecturer)
    assert before[0]["guesses"] == sorted(1 + number / 100 for number in range(200))
    served.kill()
    with (served.folder / FILE).open("a", encoding="utf-8") as file:
        file.write('{"who": "killed in the mid')
    served.start()
    assert (served.student, served.lecturer) == addresses
    assert served.shown() == before
    assert post(served.student, guess("late", 9)) == 200
    served.kill()
    served.start()
    assert served.shown()[0]["guesses"][-1] == 9


def test_a_changed_guess_replaces_the_old_one_and_the_lecturers_result_joins_them(served, capsys):
    labkit.join(served.student)
    assert "without a name" in capsys.readouterr().out
    for number in (2.0, 3.0):
        mine = labkit.predict(WHAT, number, unit="×")
    mine.against(1.5)
    assert served.shown() == [
        {"what": WHAT, "unit": "×", "guesses": [3.0], "result": None, "verb": ""}
    ]
    labkit.join(served.lecturer)
    labkit.predict(WHAT, ..., unit="×").against(1.5, kind="modelled")
    assert (served.shown()[0]["result"], served.shown()[0]["verb"]) == (1.5, "modelled")


def test_what_is_kept_says_nothing_about_who_sent_it(served):
    labkit.join(served.student)
    labkit.predict("speed-up", 2.0)
    first, *lines = map(json.loads, (served.folder / FILE).read_text("utf-8").splitlines())
    assert first.keys() == {"student", "lecturer"}
    assert [line.keys() for line in lines] == [{"who", "what", "unit", "guess"}]
    assert re.fullmatch(r"[0-9a-f]{16}", lines[0]["who"])


@pytest.mark.parametrize(
    "message",
    [
        b"no JSON",
        {**guess("a", 1), "guess": float("nan")},
        {"who": "a", "what": "b", "unit": "", "result": 2.0},  # only the lecturer has results
    ],
)
def test_what_is_no_guess_is_refused_and_not_kept(served, message):
    assert post(served.student, message) == 400
    assert post(served.student, guess("a", 1) | {"what": 3000 * "long"}) == 404
    assert served.shown() == []


def test_only_the_two_addresses_answer(served):
    root = served.student.rpartition("/")[0]
    assert post(f"{root}/guessed", guess("a", 1)) == 404
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{served.student}/data", timeout=10)


def test_a_class_that_is_gone_costs_a_sentence_and_not_the_cell(served, capsys):
    labkit.join(served.student)
    served.kill()
    capsys.readouterr()
    assert labkit.predict("speed-up", 2.0).guess == 2.0
    assert "The class cannot be reached" in capsys.readouterr().out
    served.start()


def test_without_joining_nothing_is_sent_and_a_wrong_address_is_told(served, capsys):
    labkit.predict("speed-up", 2.0)
    assert capsys.readouterr().out == ""
    assert served.shown() == []
    for wrong in ("the class", served.student + "0"):
        with pytest.raises(labkit.LabError, match="address"):
            labkit.join(wrong)


def test_the_page_draws_the_guesses_and_the_result(served, browser):
    from playwright.sync_api import expect

    page = browser.new_page()
    page.goto(served.lecturer)
    expect(page.get_by_role("status")).to_have_text("No guess yet.")
    for who, number in enumerate((1.2, 1.8, 1.9, 2.0, 2.0)):
        post(served.student, guess(who, number))
    expect(page.get_by_role("status")).to_have_text("5 guesses, half of them up to 1.9×.")
    assert page.locator("rect").count() == 3
    found = {"who": "me", "what": "speed-up", "unit": "×", "result": 0.84, "verb": "measured"}
    post(served.lecturer, found)
    expect(page.locator("svg")).to_contain_text("measured 0.84×")
    page.close()
