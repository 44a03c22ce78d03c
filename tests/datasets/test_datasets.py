"""What a student gets: real files where they are, a download in bounded time, or synthetic data."""

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
from labkit.kinds import LabError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No test sees this machine's caches, the internet, or what another test has loaded."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    monkeypatch.delenv("LABKIT_NETWORK", raising=False)
    monkeypatch.setattr(labkit.datasets, "_loaded", {})  # as in a new kernel
    return tmp_path / "cache"


@pytest.fixture
def publish(monkeypatch):
    """Replace the published files of a data set by these contents, at this address."""

    def publish(name, contents, url="http://127.0.0.1:9/", folder=None, **changes):
        files = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
        source = replace(published.PUBLISHED[name], url=url, files=files, package=None, **changes)
        monkeypatch.setitem(published.PUBLISHED, name, source)
        if folder is not None:
            (folder / source.folder).mkdir(parents=True)
            for file, content in contents.items():
                (folder / source.folder / file).write_bytes(content)

    return publish


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


# --- files on this machine ---


@pytest.mark.parametrize(
    ("variable", "folder"), [("LABKIT_CACHE", "chosen"), ("KERAS_HOME", "chosen/datasets")]
)
def test_a_file_on_this_machine_is_read_and_unpacks_as_in_keras(
    tmp_path, publish, monkeypatch, variable, folder
):
    content = npz()
    monkeypatch.delenv("LABKIT_CACHE")
    monkeypatch.setenv(variable, str(tmp_path / "chosen"))
    publish("mnist", {"mnist.npz": content}, folder=tmp_path / folder)
    assert labkit.datasets.state("mnist") == "cached"
    data = labkit.datasets.mnist()
    (x_train, y_train), (x_test, y_test) = data
    with np.load(io.BytesIO(content)) as oracle:
        assert np.array_equal(x_train, oracle["x_train"])
        assert np.array_equal(y_train, oracle["y_train"])
    assert (x_test.shape, y_test.shape) == ((10, 28, 28), (10,))
    assert (data.origin, data.label) == ("cache", "MNIST")
    assert labkit.datasets.mnist() is data
    with pytest.raises(ValueError, match="read-only"):
        x_train[0] = 0


@pytest.mark.parametrize("damage", [lambda whole: whole[:-100], lambda whole: whole + b"x"])
def test_a_damaged_file_is_not_used(cache, publish, damage):
    publish("mnist", {"mnist.npz": npz()}, folder=cache, train=50, test=20)
    (cache / "mnist.npz").write_bytes(damage(npz()))
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
    publish("fashion_mnist", dict(zip(names, contents, strict=True)), folder=cache)
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
    publish("cifar100", {"c.tar.gz": packed.getvalue()}, folder=cache)
    data = labkit.datasets.cifar100()
    assert data.x_train.shape == (2, 32, 32, 3)
    assert data.x_train[1, 5, 17].tolist() == [5, 105, 205]
    assert (data.y_train.tolist(), data.y_train.dtype) == ([[42], [42]], np.uint8)


# --- downloads ---


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends `content`, all or part of it, or nothing until the test ends."""

    content = npz()
    fault = ""
    end = threading.Event()

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.fault == "silent":
            self.end.wait(30)
            return
        if self.fault == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        with suppress(OSError):
            half = self.fault in ("cut", "slow")
            self.wfile.write(self.content[: len(self.content) // 2] if half else self.content)
            if self.fault == "slow":
                self.end.wait(30)


@pytest.fixture
def site(monkeypatch, publish):
    """A web server on this machine that publishes MNIST; returns its handler."""
    monkeypatch.delenv("LABKIT_OFFLINE")
    handler = type("ThisHandler", (Handler,), {"end": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    publish("mnist", {"mnist.npz": npz()}, url=url, train=50, test=20)
    yield handler
    handler.end.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_is_kept_as_it_came(site, cache):
    assert labkit.datasets.state("mnist") == "download"
    data = labkit.datasets.mnist()
    assert (data.origin, data.note, len(data.x_train)) == ("download", "", 30)
    assert (cache / "mnist.npz").read_bytes() == site.content
    assert labkit.datasets.state("mnist") == "cached"


def test_a_download_that_cannot_be_kept_still_serves(site, cache):
    cache.write_text("a file where the folder should be")
    data = labkit.datasets.mnist()
    assert (data.origin, len(data.x_train)) == ("download", 30)
    assert "LABKIT_CACHE" in data.note


@pytest.mark.parametrize("fault", ["cut", "other content", "missing", "silent", "slow"])
def test_a_bad_server_leads_to_synthetic_data_and_a_reason(
    site, cache, publish, monkeypatch, fault
):
    site.fault = fault
    source = published.PUBLISHED["mnist"]
    monkeypatch.setitem(published.PUBLISHED, "mnist", replace(source, size=50_000))
    monkeypatch.setattr(download, "STALL_SECONDS", 0.5)
    if fault == "other content":
        site.content = npz(31)
    data = labkit.datasets.mnist()
    assert data.synthetic
    assert "MNIST could not be downloaded" in data.note
    assert not (cache / "mnist.npz").exists()
    # The next kernel does not wait for it again.
    assert labkit.datasets.state("mnist") == "synthetic"
    monkeypatch.setattr(labkit.datasets, "_loaded", {})
    assert "download-failed" in labkit.datasets.mnist().note


@pytest.mark.parametrize("variable", [("LABKIT_OFFLINE", "1"), ("LABKIT_NETWORK", "own")])
def test_the_network_is_not_used_where_it_is_forbidden(site, monkeypatch, variable):
    monkeypatch.setenv(*variable)
    assert labkit.datasets.state("mnist") == "synthetic"
    data = labkit.datasets.mnist()
    assert data.synthetic
    assert data.note


# --- synthetic data, and what is shown ---

FORMS = {
    name: replace(form, train=10_000, test=1_000) for name, form in published.PUBLISHED.items()
}


@pytest.fixture(scope="module")
def synthetic():
    """All data sets as a machine without files and internet gives them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_OFFLINE", "1")
        patch.setattr(download, "cached_files", lambda source: [])
        patch.setattr(labkit.datasets, "_loaded", {})
        patch.setattr(labkit.datasets, "PUBLISHED", FORMS)
        return {name: getattr(labkit.datasets, name)() for name in FORMS}


@pytest.mark.parametrize("name", FORMS)
def test_synthetic_data_have_the_published_form_and_say_what_they_are(synthetic, name):
    data, form = synthetic[name], FORMS[name]
    assert data.x_train.shape == (form.train, *form.shape)
    assert data.x_test.shape == (form.test, *form.shape)
    assert data.y_train.shape == (form.train, *form.label_shape)
    assert all(array.dtype == np.uint8 for split in data for array in split)
    for labels in (data.y_train, data.y_test):
        assert len(set(np.bincount(labels.ravel()).tolist())) == 1
    shown = data._repr_mimebundle_()
    assert f"{form.name}-like synthetic data" in shown["text/plain"]
    assert "LABKIT_OFFLINE" in shown["text/html"]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("mnist", 0.5, 0.85), ("fashion_mnist", 0.6, 1), ("cifar100", 0.3, 1)],
)
def test_the_classes_can_be_learned_from_training_to_test_images(synthetic, name, least, most):
    """The nearest mean of a class: far better than chance, and digits leave work for a network."""
    data = synthetic[name]
    x, test = (part.reshape(len(part), -1).astype(np.float32) for part, _ in data)
    y, labels = data.y_train.ravel(), data.y_test.ravel()
    means = np.stack([x[y == label].mean(axis=0) for label in range(data.classes)])
    guess = (test @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    assert least <= (guess == labels).mean() <= most


def test_synthetic_digits_are_as_dark_as_mnist_and_the_same_in_every_kernel(synthetic, monkeypatch):
    """MNIST's published mean and standard deviation are 33.3 and 78.6."""
    images = synthetic["mnist"].x_train
    assert images.mean() == pytest.approx(33.3, abs=3)
    assert images.std() == pytest.approx(78.6, abs=4)
    monkeypatch.setattr(labkit.datasets, "PUBLISHED", FORMS)
    assert np.array_equal(labkit.datasets.mnist().x_train, images)


def test_a_picture_names_the_labels_of_its_images(synthetic):
    data = synthetic["cifar100"]
    alt = data.picture(rows=1, columns=3).alt
    assert ", ".join(str(label) for label in data.y_train[:3, 0]) in alt
    assert "first 3" in alt
    with pytest.raises(LabError, match="rows"):
        data.picture(rows=0)


def test_an_unknown_data_set_is_named():
    with pytest.raises(LabError, match="'cifar'"):
        labkit.datasets.state("cifar")
