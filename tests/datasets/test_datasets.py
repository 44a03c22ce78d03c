"""What a student gets: real files where they are, a download in bounded time, or synthetic data."""

import gzip
import hashlib
import http.server
import io
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import labkit
from labkit.datasets import published

RNG = np.random.default_rng(0)
ARRAYS = {
    "x_train": RNG.integers(0, 256, (30, 28, 28), np.uint8),
    "y_train": RNG.integers(0, 10, 30, np.uint8),
    "x_test": RNG.integers(0, 256, (10, 28, 28), np.uint8),
    "y_test": RNG.integers(0, 10, 10, np.uint8),
}


def npz():
    packed = io.BytesIO()
    np.savez(packed, **ARRAYS)
    return packed.getvalue()


def idx(array):
    """The format of MNIST's authors: two zeros, the type, the dimensions, then bytes."""
    lengths = np.array(array.shape, ">i4").tobytes()
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes())


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No test sees this machine's data, the internet, or what another test has loaded."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LABKIT_CACHE", str(folder))
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    monkeypatch.delenv("LABKIT_NETWORK", raising=False)
    # An address that no other test has, because what was loaded is kept by its record.
    nowhere = f"http://127.0.0.1:9{tmp_path}"
    describe(monkeypatch, "MNIST", sha256=hashlib.sha256(npz()).hexdigest(), url=nowhere)
    describe(monkeypatch, "FASHION", path=str(tmp_path / "package"))
    return folder


def describe(monkeypatch, name, **changed):
    """Change the record of a published data set."""
    record = replace(getattr(labkit.datasets, name), **changed)
    monkeypatch.setattr(labkit.datasets, name, record)


def put_mnist(folder):
    folder.mkdir(parents=True)
    (folder / "mnist.npz").write_bytes(npz())


def install_fashion():
    folder = labkit.datasets.FASHION.place
    folder.mkdir()
    names = "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"
    for name, array in zip(names, ARRAYS.values(), strict=True):
        (folder / f"{name}-ubyte.gz").write_bytes(idx(array))


# --- files on this machine ---


@pytest.mark.parametrize(
    ("variable", "folder"), [("LABKIT_CACHE", "chosen"), ("KERAS_HOME", "chosen/datasets")]
)
def test_a_file_on_this_machine_is_read_and_unpacks_as_in_keras(
    tmp_path, monkeypatch, variable, folder
):
    monkeypatch.delenv("LABKIT_CACHE")
    monkeypatch.setenv(variable, str(tmp_path / "chosen"))
    put_mnist(tmp_path / folder)
    assert labkit.datasets.MNIST.is_here()
    data = labkit.datasets.mnist()
    (x_train, y_train), (x_test, y_test) = data
    for name, array in zip(ARRAYS, (x_train, y_train, x_test, y_test), strict=True):
        assert np.array_equal(array, ARRAYS[name])
    assert (data.origin, data.label, data.note) == ("cache", "MNIST", "")
    assert labkit.datasets.mnist() is data
    with pytest.raises(ValueError, match="read-only"):
        x_train[0] = 0


def test_a_damaged_file_is_not_used(cache):
    put_mnist(cache)
    (cache / "mnist.npz").write_bytes(npz()[:-100])
    assert not labkit.datasets.MNIST.is_here()
    assert labkit.datasets.mnist().synthetic


def test_without_mnist_the_fashion_mnist_of_this_machine_is_taken_and_named(cache):
    install_fashion()
    data = labkit.datasets.mnist()
    assert (data.name, data.label, data.origin) == ("Fashion-MNIST", "Fashion-MNIST", "cache")
    assert "Fashion-MNIST" in repr(data)
    assert "Fashion-MNIST" in data.picture(rows=1, columns=2).alt
    assert np.array_equal(data.x_test, ARRAYS["x_test"])
    assert np.array_equal(data.y_train, ARRAYS["y_train"])
    put_mnist(cache)  # tried again: a failed download is not remembered
    assert labkit.datasets.mnist().label == "MNIST"


def test_the_debian_package_holds_the_published_images(monkeypatch, cache):
    monkeypatch.undo()
    if not labkit.datasets.FASHION.is_here():
        pytest.skip("dataset-fashion-mnist is not installed")
    x_train, y_train, x_test, _ = labkit.datasets.FASHION.read()
    assert (x_train.shape, x_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert np.bincount(y_train).tolist() == [6_000] * 10
    assert y_train[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert x_train.mean() == pytest.approx(72.94, abs=0.01)  # as published: 0.2860 of 255


# --- downloads ---


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends MNIST, all or part of it, or nothing until the test ends."""

    fault = ""
    end = threading.Event()

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.fault == "silent":
            self.end.wait(30)
            return
        content = npz()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(content[: len(content) // 2] if self.fault == "cut" else content)


@pytest.fixture
def site(monkeypatch):
    """A web server on this machine that publishes MNIST; returns its handler."""
    monkeypatch.delenv("LABKIT_OFFLINE")
    handler = type("ThisHandler", (Handler,), {"end": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    describe(monkeypatch, "MNIST", url=f"{url}mnist.npz")
    yield handler
    handler.end.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_is_kept_as_it_came(site, cache):
    data = labkit.datasets.mnist()
    assert (data.origin, data.note, len(data.x_train)) == ("download", "", 30)
    assert [path.name for path in cache.iterdir()] == ["mnist.npz"]
    assert labkit.datasets.MNIST.is_here()


def test_a_cache_that_cannot_be_written_is_named(site, cache):
    cache.write_text("a file where the folder should be")
    data = labkit.datasets.mnist()
    assert data.synthetic
    assert "LABKIT_CACHE" in data.note


@pytest.mark.parametrize("fault", ["cut", "silent"])
def test_a_bad_server_costs_a_timeout(site, cache, monkeypatch, fault):
    site.fault = fault
    monkeypatch.setattr(published, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(published, "STALL_SECONDS", 0.3)
    data = labkit.datasets.mnist()
    assert data.synthetic
    assert "MNIST could not be downloaded" in data.note
    assert not (cache / "mnist.npz").exists()
    site.fault = ""
    assert labkit.datasets.mnist().origin == "download"


@pytest.mark.parametrize("variable", [("LABKIT_OFFLINE", "1"), ("LABKIT_NETWORK", "own")])
def test_the_network_is_not_used_where_it_is_forbidden(site, monkeypatch, cache, variable):
    monkeypatch.setenv(*variable)
    data = labkit.datasets.mnist()
    assert data.synthetic
    assert data.note
    assert not cache.exists()


# --- synthetic data ---


def test_synthetic_data_have_the_published_form_say_what_they_are_and_can_be_learned():
    data = labkit.datasets.mnist()
    assert (data.x_train.shape, data.x_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert all(array.dtype == np.uint8 for split in data for array in split)
    for labels in (data.y_train, data.y_test):
        assert len(set(np.bincount(labels).tolist())) == 1
    shown = data._repr_mimebundle_()
    assert "MNIST-like synthetic data" in shown["text/plain"]
    assert "LABKIT_OFFLINE" in shown["text/html"]
    # The nearest mean of a class is far better than chance, and leaves work for a network.
    x, test = (part.reshape(len(part), -1).astype(np.float32) for part, _ in data)
    means = np.stack([x[data.y_train == label].mean(axis=0) for label in range(data.classes)])
    guess = (test @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    assert 0.6 <= (guess == data.y_test).mean() <= 0.95
