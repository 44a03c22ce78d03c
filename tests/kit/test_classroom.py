"""A class guesses: 200 kernels at once, a server that is killed, and the lecturer's page."""

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import labkit
from labkit.cli import main
from labkit.kit import classroom
from labkit.kit.classroom import FILE

STUDENT = re.compile(r"every student: +labkit\.join\(\"http://[^/:]+(:\d+/\w+)\"\)")
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
    with ThreadPoolExecutor(200) as clients:
        guesses = [guess(number, 1 + number / 100) for number in range(200)]
        codes = list(clients.map(partial(post, served.student), guesses))
    assert codes == [200] * 200
    before, addresses = served.shown(), (served.student, served.lecturer)
    assert before[0]["guesses"] == sorted(1 + number / 100 for number in range(200))
    served.kill()
    with (served.folder / FILE).open("a", encoding="utf-8") as file:
        file.write('{"who": "killed in the mid')
    served.start()
    assert (served.student, served.lecturer) == addresses
    assert served.shown() == before
    assert post(served.student, guess("late", 9) | {"what": "a\u2028b"}) == 200
    served.kill()
    served.start()
    assert (served.shown()[1]["what"], served.shown()[1]["guesses"]) == ("a\u2028b", [9])


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
    labkit.predict(WHAT, unit="×").against(1.5, kind="modelled")
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
        1000 * b"[" + 1000 * b"]",
        {**guess("a", 1), "guess": float("nan")},
        {**guess("a", 1), "guess": 10**400},
        guess("a", 1) | {"what": 3000 * "long"},
        {"who": "a", "what": "b", "unit": "", "result": 2.0},  # only the lecturer has results
    ],
)
def test_what_is_no_guess_is_refused_and_not_kept(served, message):
    assert post(served.student, message) == 400
    path = served.student.rpartition("/")[2]
    for size in ("-1", "many"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
            line.sendall(f"POST /{path} HTTP/1.0\r\nContent-Length: {size}\r\n\r\n".encode())
            assert b" 400 " in line.recv(100)
    assert served.shown() == []


def test_a_class_has_a_limit_of_guesses_and_of_clients_and_names_none_of_them(
    tmp_path, monkeypatch, capsys
):
    room = classroom.Classroom(tmp_path / FILE)
    monkeypatch.setattr(classroom, "MOST", 1)
    monkeypatch.setattr(classroom, "THREADS", 0)
    room.take(guess("a", 1), lecturer=False)
    with pytest.raises(ValueError, match="full"):
        room.take(guess("a", 2), lecturer=False)
    with classroom.Server(0, room) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        with socket.create_connection(("127.0.0.1", server.server_port)) as line:
            assert line.recv(1) == b""
        serving.join()
        for fault in (ConnectionResetError(), ZeroDivisionError()):
            try:
                raise fault
            except (OSError, ArithmeticError):
                server.handle_error(line, ("192.0.2.9", 5))
            said = capsys.readouterr().err
            assert ("ZeroDivisionError" in said) == (not isinstance(fault, OSError))
            assert "192.0.2.9" not in said
    assert main(["class", "--port", "99999"]) == 2


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


def test_a_class_that_never_ends_its_answer_holds_no_cell(capsys):
    def begin_to_answer():
        line = slow.accept()[0]
        line.sendall(b"HTTP/1.0 200 OK\r\nServer: ")
        held.append(line)

    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as slow:
        answering = threading.Thread(target=begin_to_answer)
        answering.start()
        labkit.join(f"http://127.0.0.1:{slow.getsockname()[1]}/a")
        answering.join()
        held[0].close()
    assert "Joined" in capsys.readouterr().out


def test_without_joining_nothing_is_sent_and_a_wrong_address_is_told(served, capsys):
    labkit.predict("speed-up", 2.0)
    assert capsys.readouterr().out == ""
    assert served.shown() == []
    for wrong in ("the class", 5, "http://127.0.0.1:99999/a", served.student + "0"):
        with pytest.raises(labkit.LabError, match="address"):
            labkit.join(wrong)


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setattr(classroom, "FILE", tmp_path / FILE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    opened = labkit.classroom(port=port)
    yield opened
    opened.close()


def vote(address: str, guess: str, cookie: str, what: str = "speed-up") -> int:
    body = f"what={what}&guess={guess}".encode()
    ask = urllib.request.Request(address, body, {"Cookie": cookie} if cookie else {})
    try:
        with urllib.request.urlopen(ask, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_phone_votes_once_on_the_question_that_was_asked_last_and_sees_the_result(
    opened, browser
):
    from playwright.sync_api import expect

    def phone():
        context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)
        page = context.new_page()
        page.goto(opened.address)
        return page

    waiting = phone()
    expect(waiting.locator("h1")).to_have_text("No question yet")
    expect(waiting.get_by_role("button")).to_be_hidden()
    projector = browser.new_page()
    faults: list[str] = []
    projector.on("console", lambda one: faults.append(one.text))
    projector.goto(opened.page)
    mine = labkit.predict("speed-up <b>of</b> $2", unit="×")
    expect(waiting.locator("h1")).to_have_text("speed-up <b>of</b> $2")  # comes by itself
    expect(projector.locator("h1")).to_have_text("speed-up <b>of</b> $2")
    code = projector.locator(".join svg")
    large = code.bounding_box()["width"]
    late, *phones = [phone(), waiting, phone()]
    for page, number in zip(phones, ("1,5", "3"), strict=True):
        page.get_by_label("your guess").fill(number)
        page.get_by_role("button").click()
        expect(page.get_by_role("status")).to_contain_text("Your guess: ")
    waiting.get_by_label("your guess").fill("2")  # changes its mind
    waiting.get_by_role("button").click()
    expect(waiting.get_by_role("status")).to_have_text("Your guess: 2.00×.")
    assert waiting.evaluate("document.documentElement.scrollWidth") <= 390
    mine.against(2.4)
    expect(projector.get_by_role("status")).to_contain_text("2 guesses")
    expect(projector.locator("#chart")).to_contain_text("measured 2.4×")
    expect(projector.get_by_role("img").first).to_be_visible()
    expect(projector.locator(".join")).to_contain_text(opened.address)
    assert code.bounding_box()["width"] < large / 2
    whole = """(svg) => [svg, ...svg.children].map((one) => one.getBoundingClientRect())
      .every((one, i, [all]) => one.right <= all.right + 1 && one.bottom <= all.bottom + 1)"""
    assert code.evaluate(whole)
    assert faults == []
    expect(late.get_by_role("status")).to_have_text(re.compile("in time. Measured: 2.4"))
    for page in [late, *phones]:
        expect(page.get_by_role("status")).to_contain_text("Measured: 2.4")
        expect(page.get_by_role("button")).to_be_hidden()
        page.context.close()
    projector.close()


def test_only_this_machine_can_vote_unless_the_network_is_asked_for(opened):
    assert opened.address.startswith("http://127.0.0.1:")
    assert opened.address in repr(opened)
    assert "<svg" in opened._repr_mimebundle_()["text/html"]
    for wrong in ({"port": 70_000}, {"hours": 0}):
        with pytest.raises(labkit.LabError):
            labkit.classroom(**wrong)


def test_what_a_phone_may_not_send(opened, monkeypatch):
    assert vote(opened.address, "5", "who=a") == 200  # nothing was asked: it does not count
    assert opened.room.shown() == []
    question = labkit.predict("speed-up", unit="×")
    assert vote(opened.address, "5", "who=a") == 200
    assert vote(opened.address, "6", "who=b", "the question before") == 200
    for text, cookie in (("5", ""), ("many", "who=a"), ("-1", "who=a"), ("nan", "who=a")):
        assert vote(opened.address, text, cookie) == 400
    assert vote(opened.address, 3000 * "1", "who=a") == 400
    assert [one["guesses"] for one in opened.room.shown()] == [[5.0]]
    monkeypatch.setitem(classroom.FROM_ONE, "browser", 0)
    assert vote(opened.address, "6", "who=a") == 429
    monkeypatch.setitem(classroom.FROM_ONE, "browser", 9)
    question.against(2.0)
    assert vote(opened.address, "2", "who=b") == 200  # too late
    assert [one["guesses"] for one in opened.room.shown()] == [[5.0]]


def test_a_class_ends_after_its_hours_and_when_another_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(classroom, "FILE", tmp_path / FILE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first = labkit.classroom(port=port)
    second = labkit.classroom(port=port, hours=1e-6)  # the port is free again
    assert second.address == first.address
    second.ended.wait(20)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(second.address, timeout=5)


def test_the_page_draws_the_guesses_and_the_result(served, browser):
    from playwright.sync_api import expect

    page = browser.new_page()
    page.goto(served.lecturer)
    expect(page.get_by_role("status")).to_have_text("No guess yet.")
    expect(page.locator("code")).to_contain_text(served.student.rpartition(":")[2])
    for who, number in enumerate((1.2, 1.8, 1.9, 2.0, 2.0)):
        post(served.student, guess(who, number))
    expect(page.get_by_role("status")).to_have_text("5 guesses, half of them up to 1.9×.")
    assert page.locator("#chart rect").count() == 3
    found = {"who": "me", "what": "speed-up", "unit": "×", "result": 0.84, "verb": "measured"}
    post(served.lecturer, found)
    expect(page.locator("#chart")).to_contain_text("measured 0.84×")
    post(served.student, guess("far", 20))
    expect(page.locator("#chart")).to_contain_text("20×0.512510")
    page.close()
