"""Small data sets, a web server on this machine, and the stand-ins in full size, drawn once."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from labkit.datasets import door
from labkit.datasets.dataset import Dataset
from labkit.datasets.download import Deadlines
from labkit.datasets.draws import Draws
from labkit.datasets.sources import CIFAR100, MNIST, Source


@pytest.fixture(autouse=True)
def alone_in_the_world(monkeypatch, tmp_path):
    """No test sees this machine's caches, the internet, or what another test has left in memory."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    monkeypatch.setattr(door, "_known", {})
    monkeypatch.setattr(door, "_failed", {})


@dataclass
class Site:
    """A web server on this machine: what it has, how it misbehaves, and what was asked of it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from `site`, with the fault that it asks for."""

    site: Site

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        fault = self.site.faults.get(self.path, "")
        if fault == "mute":
            self.site.closing.wait(20)
        elif fault.startswith("moved to "):
            self.send_response(302)
            self.send_header("Location", fault.removeprefix("moved to "))
            self.end_headers()
        elif self.path not in self.site.files:
            self.send_error(404)
        else:
            self.answer(self.site.files[self.path], fault)

    def answer(self, body: bytes, fault: str) -> None:
        self.send_response(200)
        if fault != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "slow":
            for i in range(len(body)):
                if self.site.closing.wait(0.02):
                    break
                self.wfile.write(body[i : i + 1])
        elif fault in ("cut", "stalls"):
            self.wfile.write(body[: len(body) // 2])
            if fault == "stalls":
                self.site.closing.wait(20)
        else:
            self.wfile.write(body)

    def handle(self) -> None:
        # The other side may hang up, and in some tests should.
        with contextlib.suppress(OSError):
            super().handle()


@pytest.fixture
def site() -> Iterator[Site]:
    this = Site()
    handler = type("HandlerOfThisTest", (Handler,), {"site": this})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    this.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield this
    this.closing.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


def _npz_of(source: Source, seed: int = 0) -> bytes:
    """A file as the source would publish it, with random content."""
    rng = np.random.default_rng(seed)
    packed = io.BytesIO()
    np.savez(
        packed,
        x_train=rng.integers(0, 256, (source.train, *source.shape), np.uint8),
        y_train=rng.integers(0, source.classes, source.train).astype(np.uint8),
        x_test=rng.integers(0, 256, (source.test, *source.shape), np.uint8),
        y_test=rng.integers(0, source.classes, source.test).astype(np.uint8),
    )
    return packed.getvalue()


def _tar_of(source: Source, seed: int = 0) -> bytes:
    """A CIFAR-100 archive with random content."""
    rng = np.random.default_rng(seed)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, count in (("train.bin", source.train), ("test.bin", source.test)):
            records = rng.integers(0, 256, (count, 2 + 32 * 32 * 3), np.uint8)
            records[:, 0] //= 13
            records[:, 1] = rng.integers(0, source.classes, count)
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = records.nbytes
            archive.addfile(member, io.BytesIO(records.tobytes()))
    return packed.getvalue()


def _published(source: Source, content: bytes) -> Source:
    # Port 9 of this machine refuses: a test that asks nobody by mistake is told so at once.
    nobody = "http://127.0.0.1:9/none"
    checksum = hashlib.sha256(content).hexdigest()
    return replace(source, size=len(content), sha256=checksum, url=nobody)


def _noise(count, split, advance):
    """In place of a drawing: quick to make, and different in the two splits."""
    draws = Draws(split)
    advance(count)
    return draws.octets(count * 784).reshape(count, 28, 28), draws.labels(count, 10)


FAST = Deadlines(answer_s=2.0, stall_s=1.0, total_s=10.0)
_SMALL = replace(MNIST, train=300, test=100, drawn_sha256="", draw=_noise, deadlines=FAST)
_SMALL_CIFAR = replace(CIFAR100, train=200, test=100, drawn_sha256="", deadlines=FAST)


@pytest.fixture(scope="session")
def small_file() -> bytes:
    """What the web would hold of `small`."""
    return _npz_of(_SMALL)


@pytest.fixture(scope="session")
def small(small_file) -> Source:
    """MNIST with few images and short deadlines."""
    return _published(_SMALL, small_file)


@pytest.fixture(scope="session")
def small_cifar_file() -> bytes:
    return _tar_of(_SMALL_CIFAR)


@pytest.fixture(scope="session")
def small_cifar(small_cifar_file) -> Source:
    return _published(_SMALL_CIFAR, small_cifar_file)


@pytest.fixture
def cache(tmp_path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def full_cache(tmp_path_factory) -> Path:
    """Where the full stand-ins are kept for the whole session."""
    return tmp_path_factory.mktemp("full")


def _full(source: Source, folder: Path) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_OFFLINE", "1")
        patch.setenv("KERAS_HOME", str(folder / "keras"))
        patch.setenv("LABKIT_PROGRESS", "off")
        patch.setattr(door, "_known", {})
        return door.enter(source, folder)


@pytest.fixture(scope="session")
def mnist_stand_in(full_cache) -> Dataset:
    return _full(MNIST, full_cache)


@pytest.fixture(scope="session")
def cifar_stand_in(full_cache) -> Dataset:
    return _full(CIFAR100, full_cache)
