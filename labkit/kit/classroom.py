"""The guesses of a class as a histogram that grows, and the measured number in it.

>>> labkit.classroom(network=True)  # doctest: +SKIP
Vote at http://192.0.2.7:8765/k3f9a1b2 (QR code); your page, for the projector: http://127.0.0.1:…

`labkit class` is the same as a process of its own. Phones vote with a plain form, one vote a
browser, on the question that the lecturer's `predict` asked last; kernels join with `labkit.join`.

What is kept is a line for each guess, in a file of this folder: the question, the number, and a
random number of the kernel or browser that sent it. A class that was killed goes on with this file.
"""

import json
import os
import secrets
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs

from labkit.arguments import number, whole
from labkit.kinds import LabError
from labkit.timing.estimate import quantity_text

FILE = "labkit-class.jsonl"
PAGE = Path(__file__).with_suffix(".html")
FORM = Path(__file__).with_name("classroom_vote.html")
LONGEST = 2000  # bytes of a message
MOST = 20_000  # lines that are kept
SHOWN = 50  # questions
THREADS = 400  # clients at the same moment
WINDOW = 10.0  # seconds in which messages are counted
FROM_ONE = {"browser": 20, "address": 2000}  # messages: a whole class may have one address


@dataclass
class ClassQuestion:
    """A question, the guesses by kernel, and the lecturer's result."""

    what: str
    unit: str
    guesses: dict[str, float] = field(default_factory=dict)
    result: float | None = None
    verb: str = ""  # measured, counted or modelled


class Classroom:
    """All questions, newest last, and the file that keeps them."""

    def __init__(self, file: Path) -> None:
        self.questions: dict[tuple[str, str], ClassQuestion] = {}
        self.paths: dict[str, str] = {}
        self.now: tuple[str, str] | None = None  # the question that the lecturer asked last
        self._recent, self._since = Counter[tuple[str, str]](), 0.0
        self._lock = threading.Lock()
        text = file.read_text("utf-8") if file.exists() else ""
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if text and not text.endswith("\n"):  # it was killed in the middle of a line
            os.write(self._file, b"\n")
        self._kept = text.count("\n")
        for line in text.splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if "student" in found:
                self.paths = found
            else:
                self._add(found)
        if not self.paths:
            student, lecturer = secrets.token_hex(4), f"lecturer-{secrets.token_hex(8)}"
            self.paths = {"student": f"/{student}", "lecturer": f"/{lecturer}"}
            self._keep(self.paths)

    def take(self, message: dict[str, Any], *, lecturer: bool) -> None:
        """Take a guess; from the lecturer also a question or a result. ValueError: it is none."""
        what, unit, who = (str(message[key]) for key in ("what", "unit", "who"))
        sent: dict[str, Any] = {"what": what[:200], "unit": unit[:20], "who": who[:32]}
        if lecturer:
            sent["asked"] = True
        if lecturer and "result" in message:
            sent |= {"result": float(message["result"]), "verb": str(message["verb"])[:20]}
        elif not lecturer or "guess" in message:
            sent["guess"] = float(message["guess"])
        for value in (sent.get("result", 0.0), sent.get("guess", 0.0)):
            if not abs(value) < 1e100:  # also NaN
                raise ValueError(value)
        with self._lock:
            if self._kept > MOST:
                raise ValueError(f"{FILE} is full")
            self._keep(sent)
            self._add(sent)

    def vote(self, who: str, what: str, text: str) -> None:
        """Take the number of a form, unless it comes too late. ValueError: it is no number."""
        asked = self.questions[self.now] if self.now else None
        guess = number("guess", float(text.strip().replace(",", ".")), at_least=0)
        if asked is not None and asked.result is None and asked.what == what:
            message = {"what": asked.what, "unit": asked.unit, "who": who, "guess": guess}
            self.take(message, lecturer=False)

    def is_flooded(self, **sources: str) -> bool:
        """Returns whether one of the sources of a message sends too many of them."""
        with self._lock:
            if time.monotonic() - self._since > WINDOW:
                self._since = time.monotonic()
                self._recent.clear()
            self._recent.update(sources.items())
            return any(self._recent[one] > FROM_ONE[one[0]] for one in sources.items())

    def form(self, who: str) -> str:
        """Returns the page of a phone: the question, this browser's guess, the result."""
        with self._lock:
            asked = self.questions[self.now] if self.now else None
            mine = asked.guesses.get(who) if asked else None
        over = asked is not None and asked.result is not None
        said = [] if asked else ["It appears here when it is asked."]
        if asked is not None and mine is not None:
            said.append(f"Your guess: {quantity_text(mine, asked.unit)}.")
        elif over:
            said.append("No guess of yours came in time.")
        if asked is not None and asked.result is not None:
            said.append(f"{asked.verb.capitalize()}: {quantity_text(asked.result, asked.unit)}.")
        texts = {
            "what": asked.what if asked else "No question yet",
            "unit": asked.unit if asked else "",
            "said": " ".join(said),
            "closed": "hidden" if asked is None or over else "",
        }
        form = Template(FORM.read_text("utf-8"))
        return form.substitute({name: escape(text) for name, text in texts.items()})

    def shown(self) -> list[dict[str, Any]]:
        """Returns what the page draws: no number says whose it is."""
        with self._lock:
            newest = [*self.questions.values()][-SHOWN:]
            return [{**vars(asked), "guesses": sorted(asked.guesses.values())} for asked in newest]

    def _keep(self, line: dict[str, Any]) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())
        self._kept += 1

    def _add(self, sent: dict[str, Any]) -> None:
        key = sent["what"], sent["unit"]
        question = self.questions.pop(key, ClassQuestion(*key))
        self.questions[key] = question  # the newest last
        if "asked" in sent:
            self.now = key
        if "guess" in sent:
            question.guesses[sent["who"]] = sent["guess"]
        if "result" in sent:
            question.result, question.verb = sent["result"], sent["verb"]


class Server(ThreadingHTTPServer):
    """A thread for each request: a class guesses at the same moment."""

    request_queue_size = 512
    daemon_threads = True

    def __init__(self, port: int, room: Classroom, *, network: bool = True) -> None:
        self.room = room
        try:
            super().__init__(("" if network else "127.0.0.1", port), Handler)
        except OSError as fault:
            raise LabError(
                f"Port {port} cannot be used ({fault.strerror}): take another port."
            ) from None
        host = _address() if network else "127.0.0.1"
        self.student = f"http://{host}:{self.server_port}{room.paths['student']}"
        self.lecturer = f"http://127.0.0.1:{self.server_port}{room.paths['lecturer']}"
        self.join = f'labkit.join("{self.student}")'

    def qr_code(self) -> str:
        """Returns the students' address as a QR code, in SVG."""
        import segno

        code = segno.make(self.student, error="m")
        return str(code.svg_inline(omitsize=True, light="#fff"))  # as large as what it stands in

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. If there are too many, the client says that it found no class."""
        if threading.active_count() > THREADS:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error without a student's address. A client that leaves is no error."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """Takes what students send, and shows the lecturer the page. Other paths are not found."""

    server: Server
    timeout = 5

    def do_POST(self) -> None:
        """Take a guess, a question, a result, or the empty message of a kernel that joins."""
        room, paths = self.server.room, self.server.room.paths
        if self.path not in paths.values():
            return self.send_error(404)
        who = self._browser()
        if room.is_flooded(browser=who or "kernels", address=self.client_address[0]) and who:
            return self.send_error(429)
        try:
            size = whole("size", int(self.headers.get("Content-Length", 0)), at_most=LONGEST)
            text = self.rfile.read(size)
            if self.headers.get_content_type() == "application/x-www-form-urlencoded" and who:
                sent = parse_qs(text.decode())
                room.vote(who, sent["what"][0], sent["guess"][0])
                return self._answer("", b"", 303, {"Location": self.path})
            if message := json.loads(text):
                room.take(message, lecturer=self.path == paths["lecturer"])
        except (LabError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            return self.send_error(400)
        return self._answer("text/plain", b"")

    def do_GET(self) -> None:
        """Send the lecturer's page, or what it draws."""
        paths = self.server.room.paths
        if self.path == paths["lecturer"]:
            page = PAGE.read_text("utf-8").replace("JOIN", self.server.join)
            page = page.replace("ADDRESS", self.server.student)
            page = page.replace("QR_CODE", self.server.qr_code())
            return self._answer("text/html", page.encode())
        if self.path == f"{paths['lecturer']}/data":
            return self._answer("application/json", json.dumps(self.server.room.shown()).encode())
        if self.path == paths["student"]:
            who = self._browser() or secrets.token_hex(8)
            cookie = f"who={who}; Path={self.path}; Max-Age=86400; HttpOnly; SameSite=Strict"
            policy = "default-src 'unsafe-inline'; connect-src 'self'; form-action 'self'"
            form = self.server.room.form(who).encode()
            more = {"Set-Cookie": cookie, "Content-Security-Policy": policy}
            return self._answer("text/html", form, headers=more)
        return self.send_error(404)

    def _browser(self) -> str:
        """Returns the random number of this browser, or "" if it has none yet."""
        found = SimpleCookie(self.headers.get("Cookie", "")).get("who")
        return found.value[:32] if found else ""

    def log_message(self, *_: object) -> None:
        """Log nothing: a line would hold the address of a student's machine."""

    def _answer(
        self, kind: str, body: bytes, code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class OpenClass:
    """A class that this kernel serves; named in a cell, it shows address and QR code."""

    def __init__(self, server: Server, hours: float) -> None:
        self.address, self.page, self.room = server.student, server.lecturer, server.room
        self.ended = threading.Event()
        self._server, self._qr_code = server, server.qr_code()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._timer = threading.Timer(3600 * hours, self.close)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """End the class; the file with the guesses stays."""
        self._timer.cancel()
        self._server.shutdown()
        self._server.server_close()
        self.ended.set()
        if os.environ.get("LABKIT_CLASS") == self.page:
            del os.environ["LABKIT_CLASS"]

    def __repr__(self) -> str:
        return f"Vote at {self.address} (QR code); your page, for the projector: {self.page}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        html = (
            f'<p><strong style="font-size: 1.6em">{self.address}</strong></p>'
            f'<div style="width: 15em">{self._qr_code}</div>'
            f'<p>Your page, for the projector: <a href="{self.page}" target="_blank">'
            f"{self.page}</a></p><p>Guesses are kept in {FILE}; delete it after class.</p>"
        )
        return {"text/plain": repr(self), "text/html": html}


_open: list[OpenClass] = []


def classroom(*, network: bool = False, port: int = 8765, hours: float = 3.0) -> OpenClass:
    """Let a class vote by phone on the questions of your `predict` cells.

    Only this machine can vote unless you ask for the `network`. The class ends with this kernel,
    after `hours`, with `close()`, or when another one is opened.
    """
    whole("port", port, at_most=65_535)
    number("hours", hours, above=0, at_most=24)
    while _open:
        _open.pop().close()
    opened = OpenClass(Server(port, Classroom(Path(FILE)), network=network), hours)
    _open.append(opened)
    os.environ["LABKIT_CLASS"] = opened.page
    return opened


def main(port: int) -> int:
    """Serve until Ctrl-C."""
    whole("--port", port, at_most=65_535)
    server = Server(port, Classroom(Path(FILE)))
    print(
        f"For phones, and in a cell of every student:  {server.join}\n"
        f"Your page, for the projector: {server.lecturer}\n"
        f'In a cell of yours:           labkit.join("{server.lecturer}")\n'
        f"Guesses are kept in {FILE}; delete it after class. Ctrl-C ends the class.",
        flush=True,
    )
    with server:
        server.serve_forever()
    return 0


def _address() -> str:
    """Returns the address of this machine on its network. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("192.0.2.1", 9))
        except OSError:  # no network
            return "127.0.0.1"
        return str(line.getsockname()[0])
