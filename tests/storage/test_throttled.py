"""A disk with a rate: what it counts, who shares it, and which readers it covers."""

import io
import os
import tarfile
import threading
from multiprocessing import get_context

import numpy as np
import pytest

from labkit import LabError, storage

SIZE = 100_000


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(np.random.default_rng(0).bytes(SIZE))
    return file


def fast():
    return storage.disk("10 GB/s")


def test_bytes_are_those_of_the_file_wherever_it_is_read(path):
    truth = path.read_bytes()
    for buffer in (0, 1, 100, 8192, 10**6):
        with fast().open(path, buffer=buffer) as file:
            assert file.read() == truth
            file.seek(-10, os.SEEK_END)
            assert file.read(20) == truth[-10:]
            file.seek(77)
            assert file.read(5) == truth[77:82]
            assert file.tell() == 82


def test_without_a_buffer_it_serves_what_is_asked_for(path):
    disk = fast()
    with disk.open(path, buffer=0) as file:
        for start in (5, 50_000, 99_990):
            file.seek(start)
            file.read(100)
    assert (disk.bytes, disk.requests) == (210, 4)


def test_a_buffer_reads_ahead(path):
    disk = fast()
    with disk.open(path, buffer=20_000) as file:
        for start in (0, 10, 19_000, 50_000):
            file.seek(start)
            file.read(100)
    assert (disk.bytes, disk.requests) == (40_000, 3)
    disk.reset()
    assert (disk.bytes, disk.requests) == (0, 0)


def test_numpy_and_tarfile_and_h5py_do_not_read_past_it(path, tmp_path):
    h5py = pytest.importorskip("h5py")
    rows = np.arange(40_000, dtype=np.int64).reshape(400, 100)
    np.save(tmp_path / "rows.npy", rows)
    with tarfile.open(tmp_path / "rows.tar", "w") as tar:
        tar.add(path, "one")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(10, 100))
    disk = fast()
    with disk.open(tmp_path / "rows.npy") as file:
        assert (np.load(file) == rows).all()
    assert disk.bytes >= rows.nbytes
    disk.reset()
    with disk.open(tmp_path / "rows.tar") as file, tarfile.open(fileobj=file) as tar:
        assert tar.extractfile("one").read() == path.read_bytes()
    assert disk.bytes >= SIZE
    disk.reset()
    with disk.open(tmp_path / "rows.h5", buffer=0) as file, h5py.File(file) as rows_of:
        assert (rows_of["rows"][35] == rows[35]).all()
    assert 8_000 <= disk.bytes < rows.nbytes / 4, "one chunk of ten rows, and what finds it"


def test_threads_and_forked_processes_share_its_count_and_its_rate(path):
    disk = storage.disk("10 MB/s")

    def read():
        with disk.open(path, buffer=0) as file:
            file.read()

    threads = [threading.Thread(target=read) for _ in range(3)]
    threads.append(get_context("fork").Process(target=read))
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (disk.bytes, disk.requests) == (4 * SIZE, 8)


def test_a_read_waits_for_all_before_it_and_latencies_overlap(monkeypatch):
    now, slept = 100.0, []
    monkeypatch.setattr("labkit.storage.throttled.time.monotonic", lambda: now)
    monkeypatch.setattr("labkit.storage.throttled.time.sleep", slept.append)
    disk = storage.disk(1e6, latency=0.5)
    disk.serve(1_000_000)
    disk.serve(2_000_000)  # asked at the same moment, as by another thread
    assert slept == pytest.approx([1.5, 3.5], abs=0.01)


def test_what_it_says(path):
    disk = storage.disk("20 MB/s", latency=0.002)
    assert str(disk) == "Disk of 20.0 MB/s, 2.00 ms for each request: 0 B served in 0 requests"


@pytest.mark.parametrize(
    "wrong", [lambda: storage.disk("fast"), lambda: storage.disk(1e6, latency=-1)]
)
def test_a_disk_without_a_rate_is_refused(wrong):
    with pytest.raises(LabError):
        wrong()


def test_a_file_that_is_not_there_is_named(tmp_path):
    for read in (fast().open, storage.cached, storage.evict):
        with pytest.raises(LabError, match="nothing-here"):
            read(tmp_path / "nothing-here")


def test_numpy_takes_it_for_no_real_file(path):
    with fast().open(path) as file, pytest.raises(io.UnsupportedOperation):
        file.fileno()
