"""`labkit class`: the guesses of a class as a histogram that grows, and the measured number in it.

$ labkit class
In a cell of every student:  labkit.join("http://192.0.2.7:8765/k3f9a1")

What is kept is a line for each guess, in a file of this folder: the question, the number, and a
random number of the kernel that sent it. A class that was killed goes on with this file.
"""

import json
import math
import os
import secrets
import socket
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from labkit.kinds import LabError

FILE = "labkit-class.jsonl"
PAGE = Path(__file__).with_suffix(".html")
LONGEST = 2000  # bytes of a message


@dataclass
class Question:
    """What was asked, the guesses by the kernel that made them, and the lecturer's result."""

    what: str
    unit: str
    guesses: dict[str, float] = field(default_factory=dict)
    result: float | None = None
    verb: str = ""  # measured, counted or modelled


class Classroom:
    """All questions, the newest last, and the file that keeps them."""

    def __init__(self, file: Path) -> None:
        self.questions: dict[tuple[str, str], Question] = {}
        self.paths: dict[str, str] = {}
        self._lock = Lock()
        text = file.read_text("utf-8") if file.exists() else ""
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if text and not text.endswith("\n"):  # it was killed in the middle of a line
            os.write(self._file, b"\n")
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
            student, lecturer = secrets.token_hex(3), f"lecturer-{secrets.token_hex(8)}"
            self.paths = {"student": f"/{student}", "lecturer": f"/{lecturer}"}
            self._keep(self.paths)

    def take(self, message: dict[str, Any], *, lecturer: bool) -> None:
        """A guess, or from the lecturer a result; ValueError if it is neither."""
        what, unit, who = (str(message[key]) for key in ("what", "unit", "who"))
        sent: dict[str, Any] = {"what": what[:200], "unit": unit[:20], "who": who[:32]}
        kind = "result" if lecturer and "result" in message else "guess"
        sent[kind] = value = float(message[kind])
        if kind == "result":
            sent["verb"] = str(message["verb"])[:20]
        if not math.isfinite(value):
            raise ValueError(value)
        with self._lock:
            self._keep(sent)
            self._add(sent)

    def shown(self) -> list[dict[str, Any]]:
        """What the page draws: no number says whose it is."""
        with self._lock:
            every = self.questions.values()
            return [{**vars(one), "guesses": sorted(one.guesses.values())} for one in every]

    def _keep(self, line: dict[str, Any]) -> None:
        os.write(self._file, (json.dumps(line, ensure_ascii=False) + "\n").encode())

    def _add(self, sent: dict[str, Any]) -> None:
        key = sent["what"], sent["unit"]
        one = self.questions.pop(key, Question(*key))
        self.questions[key] = one  # the newest last
        if "guess" in sent:
            one.guesses[sent["who"]] = sent["guess"]
        else:
            one.result, one.verb = sent["result"], sent["verb"]


class Server(ThreadingHTTPServer):
    """One thread for each request: a class guesses at the same moment."""

    request_queue_size = 512
    daemon_threads = True

    def __init__(self, port: int, room: Classroom) -> None:
        self.room = room
        super().__init__(("", port), Handler)


class Handler(BaseHTTPRequestHandler):
    """Takes what students send, and shows the lecturer the page; all else is not found."""

    server: Server
    timeout = 5

    def do_POST(self) -> None:
        """A guess, a result, or an empty message of a kernel that joins."""
        paths, size = self.server.room.paths, int(self.headers.get("Content-Length", 0))
        if self.path not in paths.values() or size > LONGEST:
            return self.send_error(404)
        try:
            if message := json.loads(self.rfile.read(size)):
                self.server.room.take(message, lecturer=self.path == paths["lecturer"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return self.send_error(400)
        return self._answer("text/plain", b"")

    def do_GET(self) -> None:
        """The lecturer's page, and what it draws."""
        paths = self.server.room.paths
        if self.path == paths["lecturer"]:
            return self._answer("text/html", PAGE.read_bytes())
        if self.path == f"{paths['lecturer']}/data":
            return self._answer("application/json", json.dumps(self.server.room.shown()).encode())
        if self.path == paths["student"]:
            return self._answer("text/plain", b"Write this address into a cell: labkit.join(...)")
        return self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Nothing: a line of the log would hold the address of a student's machine."""

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(port: int) -> int:
    """Serve until Ctrl-C."""
    room = Classroom(Path(FILE))
    try:
        server = Server(port, room)
    except OSError as fault:
        raise LabError(f"Port {port} cannot be used ({fault.strerror}): take --port.") from None
    port = server.server_address[1]
    print(
        f'In a cell of every student:  labkit.join("http://{_address()}:{port}'
        f'{room.paths["student"]}")\n'
        f"Your page, for the projector: http://127.0.0.1:{port}{room.paths['lecturer']}\n"
        f'In a cell of yours:           labkit.join("http://127.0.0.1:{port}'
        f'{room.paths["lecturer"]}")\n'
        f"Guesses are kept in {FILE}; delete it after class. Ctrl-C ends the class.",
        flush=True,
    )
    with server:
        server.serve_forever()
    return 0


def _address() -> str:
    """Of this machine on its network; nothing is sent to find it out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("192.0.2.1", 9))
        except OSError:  # no network
            return "127.0.0.1"
        return str(line.getsockname()[0])
