"""What a student gets: real files where they are, a download in bounded time, or synthetic data."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import labkit.datasets
from labkit.datasets import download, published
from labkit.datasets.download import DownloadError
from labkit.kinds import LabError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No test sees this machine's caches, the internet, or what another test has loaded."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    monkeypatch.delenv("LABKIT_NETWORK", raising=False)
    monkeypatch.setattr(labkit.datasets, "_loaded", {})  # as in a new kernel
    return tmp_path / "cache"


def npz(train=30, test=10):
    """A file in the form of Keras' mnist.npz, with random content."""
    rng = np.random.default_rng(0)
    packed = io.BytesIO()
    np.savez(
        packed,
        x_train=rng.integers(0, 256, (train, 28, 28), np.uint8),
        y_train=rng.integers(0, 10, train).astype(np.uint8),
        x_test=rng.integers(0, 256, (test, 28, 28), np.uint8),
        y_test=rng.integers(0, 10, test).astype(np.uint8),
    )
    return packed.getvalue()


@pytest.fixture
def publish(monkeypatch):
    """Replace the published files of a data set by these contents, at this address."""

    def publish(name, contents, url="http://127.0.0.1:9/", **changes):
        files = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
        source = replace(published.PUBLISHED[name], url=url, files=files, package=None, **changes)
        monkeypatch.setitem(published.PUBLISHED, name, source)
        return source

    return publish


# --- files on this machine ---


def test_a_cached_file_is_read_and_unpacks_as_in_keras(cache, publish):
    content = npz()
    publish("mnist", {"mnist.npz": content})
    cache.mkdir()
    (cache / "mnist.npz").write_bytes(content)
    data = labkit.datasets.mnist()
    (x_train, y_train), (x_test, y_test) = data
    with np.load(io.BytesIO(content)) as oracle:
        assert np.array_equal(x_train, oracle["x_train"])
        assert np.array_equal(y_train, oracle["y_train"])
    assert (x_test.shape, y_test.shape) == ((10, 28, 28), (10,))
    assert (data.origin, data.label) == ("cache", "MNIST")
    assert labkit.datasets.mnist() is data


def test_keras_own_cache_is_read_too(cache, publish, tmp_path):
    content = npz()
    publish("mnist", {"mnist.npz": content})
    keras = tmp_path / "keras" / "datasets"
    keras.mkdir(parents=True)
    (keras / "mnist.npz").write_bytes(content)
    assert labkit.datasets.state("mnist") == "cached"
    assert labkit.datasets.mnist().origin == "cache"


@pytest.mark.parametrize("damage", [lambda whole: whole[:-100], lambda whole: whole + b"x"])
def test_a_damaged_file_is_not_used(cache, publish, damage):
    content = npz()
    publish("mnist", {"mnist.npz": content}, train=50, test=20)
    cache.mkdir()
    (cache / "mnist.npz").write_bytes(damage(content))
    assert labkit.datasets.state("mnist") == "synthetic"
    assert labkit.datasets.mnist().synthetic


def test_the_debian_package_gives_the_real_fashion_mnist():
    if not published.PUBLISHED["fashion_mnist"].package.is_dir():
        pytest.skip("the package dataset-fashion-mnist is not installed")
    data = labkit.datasets.fashion_mnist()
    assert (data.x_train.shape, data.x_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert np.bincount(data.y_train).tolist() == [6_000] * 10
    assert data.y_train[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert data.x_train.mean() == pytest.approx(72.94, abs=0.01)  # as published: 0.2860 of 255
    assert data.label == "Fashion-MNIST"


def test_idx_files_are_read_from_the_cache(cache, publish):
    images = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    pixels = bytes([0, 0, 8, 3]) + np.array([3, 28, 28], ">i4").tobytes() + images.tobytes()
    labels = bytes([0, 0, 8, 1]) + np.array([3], ">i4").tobytes() + bytes([7, 0, 9])
    contents = [gzip.compress(pixels), gzip.compress(labels)] * 2
    names = published.PUBLISHED["fashion_mnist"].files
    files = dict(zip(names, contents, strict=True))
    publish("fashion_mnist", files)
    (cache / "fashion-mnist").mkdir(parents=True)
    for name, content in files.items():
        (cache / "fashion-mnist" / name).write_bytes(content)
    data = labkit.datasets.fashion_mnist()
    assert np.array_equal(data.x_test, images)
    assert data.y_train.tolist() == [7, 0, 9]


def test_cifar_planes_become_pixels_and_labels_have_keras_shape(cache, publish):
    rows = np.repeat(np.arange(32, dtype=np.uint8), 32)
    record = np.concatenate([[3, 42], rows, rows + 100, rows + 200]).astype(np.uint8).tobytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("train.bin", record * 2), ("test.bin", record)):
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    publish("cifar100", {"c.tar.gz": packed.getvalue()})
    cache.mkdir()
    (cache / "c.tar.gz").write_bytes(packed.getvalue())
    data = labkit.datasets.cifar100()
    assert data.x_train.shape == (2, 32, 32, 3)
    assert data.x_train[1, 5, 17].tolist() == [5, 105, 205]
    assert (data.y_train.tolist(), data.y_train.dtype) == ([[42], [42]], np.uint8)


def test_a_lesson_cannot_change_the_data(publish):
    publish("mnist", {"mnist.npz": b""}, train=20, test=10)
    with pytest.raises(ValueError, match="read-only"):
        labkit.datasets.mnist().x_train[0] = 0


# --- downloads ---


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends `content`, all or part of it, or nothing until the test ends."""

    content = b""
    fault = ""
    end = threading.Event()

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.fault == "mute":
            self.end.wait(30)
            return
        if self.fault == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        half = len(self.content) // 2
        with suppress(OSError):
            self.wfile.write(self.content[:half] if self.fault == "cut" else self.content)


@pytest.fixture
def site(monkeypatch, publish):
    """A web server on this machine that publishes MNIST; returns its handler."""
    monkeypatch.delenv("LABKIT_OFFLINE")
    content = npz()
    handler = type("ThisHandler", (Handler,), {"content": content, "end": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    publish("mnist", {"mnist.npz": content}, url=url, train=50, test=20)
    yield handler
    handler.end.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_is_kept_as_it_came(site, cache, monkeypatch):
    assert labkit.datasets.state("mnist") == "download"
    data = labkit.datasets.mnist()
    assert (data.origin, data.notes, len(data.x_train)) == ("download", (), 30)
    assert (cache / "mnist.npz").read_bytes() == site.content
    assert labkit.datasets.state("mnist") == "cached"


def test_a_download_that_cannot_be_kept_still_serves(site, cache):
    cache.write_text("a file where the folder should be")
    data = labkit.datasets.mnist()
    assert (data.origin, len(data.x_train)) == ("download", 30)
    assert "LABKIT_CACHE" in data.notes[0]


@pytest.mark.parametrize("fault", ["cut", "other content", "missing", "mute"])
def test_a_bad_server_leads_to_synthetic_data_and_a_reason(site, cache, monkeypatch, fault):
    site.fault = fault
    if fault == "mute":
        monkeypatch.setattr(download, "STALL_SECONDS", 1.0)
    if fault == "other content":
        site.content = npz(31)
    data = labkit.datasets.mnist()
    assert data.synthetic
    assert "MNIST could not be downloaded" in data.notes[0]
    assert not (cache / "mnist.npz").exists()
    # The next kernel does not wait for it again.
    assert labkit.datasets.state("mnist") == "synthetic"
    monkeypatch.setattr(labkit.datasets, "_loaded", {})
    assert "less than an hour ago" in labkit.datasets.mnist().notes[0]


def test_a_download_ends_at_its_time_limit(site):
    source = replace(published.PUBLISHED["mnist"], time_limit=0.5)  # less than Keras' import
    with pytest.raises(DownloadError, match="took longer"):
        download.fetch(source)


def test_no_network_is_asked_where_it_is_forbidden(site, monkeypatch):
    monkeypatch.setattr(download, "fetch", lambda source: pytest.fail("a download was tried"))
    for variable, value in (("LABKIT_OFFLINE", "1"), ("LABKIT_NETWORK", "own")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            patch.setattr(labkit.datasets, "_loaded", {})
            assert labkit.datasets.state("mnist") == "synthetic"
            assert labkit.datasets.mnist().notes


# --- synthetic data ---


@pytest.fixture(scope="module")
def synthetic():
    """All data sets as a machine without files and internet gives them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_OFFLINE", "1")
        patch.setattr(download, "cached_files", lambda source: [])
        patch.setattr(labkit.datasets, "_loaded", {})
        return {name: getattr(labkit.datasets, name)() for name in published.PUBLISHED}


@pytest.mark.parametrize("name", published.PUBLISHED)
def test_synthetic_data_have_the_published_form(synthetic, name):
    data, form = synthetic[name], published.PUBLISHED[name]
    assert data.x_train.shape == (form.train, *form.shape)
    assert data.x_test.shape == (form.test, *form.shape)
    assert data.y_train.shape == (form.train, *form.label_shape)
    assert all(array.dtype == np.uint8 for split in data for array in split)
    for labels in (data.y_train, data.y_test):
        assert len(set(np.bincount(labels.ravel()).tolist())) == 1
    assert data.label == f"{form.name}-like synthetic data"
    assert data.label in repr(data)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("mnist", 0.5, 0.85), ("fashion_mnist", 0.6, 1), ("cifar100", 0.3, 1)],
)
def test_the_classes_can_be_learned_from_training_to_test_images(synthetic, name, least, most):
    """The nearest mean of a class: far better than chance, and digits leave work for a network."""
    data = synthetic[name]
    x, y = data.x_train[:20_000].reshape(20_000, -1).astype(np.float32), data.y_train[:20_000]
    means = np.stack([x[y.ravel() == label].mean(axis=0) for label in range(data.classes)])
    test = data.x_test[:2_000].reshape(2_000, -1).astype(np.float32)
    guess = (test @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    assert least <= (guess == data.y_test[:2_000].ravel()).mean() <= most


def test_digits_are_as_dark_as_mnist(synthetic):
    """MNIST's published mean and standard deviation are 33.3 and 78.6."""
    images = synthetic["mnist"].x_train
    assert images.mean() == pytest.approx(33.3, abs=3)
    assert images.std() == pytest.approx(78.6, abs=4)


def test_synthetic_data_are_the_same_in_every_kernel(synthetic, monkeypatch):
    again = labkit.datasets.mnist()
    for (x, y), (other, label) in zip(synthetic["mnist"], again, strict=True):
        assert np.array_equal(x, other)
        assert np.array_equal(y, label)


# --- what is shown ---


def test_a_notebook_shows_what_the_data_are(synthetic):
    data = synthetic["cifar100"]
    shown = data._repr_mimebundle_()
    assert shown["text/plain"] == repr(data)
    assert "synthetic data" in shown["text/html"]
    assert "LABKIT_OFFLINE" in str(data)
    assert "LABKIT_OFFLINE" not in repr(data)


def test_a_picture_names_the_labels_of_its_images(synthetic):
    data = synthetic["cifar100"]
    alt = data.picture(rows=1, columns=3).alt
    assert ", ".join(str(label) for label in data.y_train[:3, 0]) in alt
    assert "first 3" in alt


def test_arguments_are_checked(synthetic):
    with pytest.raises(LabError, match="rows"):
        synthetic["mnist"].picture(rows=0)
    with pytest.raises(LabError, match="'cifar'"):
        labkit.datasets.state("cifar")
