"""What is cached is counted by the kernel; what is evicted is read anew."""

import os
from pathlib import Path

import psutil
import pytest

from labkit import storage

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="Linux alone has it")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(os.urandom(4_000_000))
    return file


def file_system(path):
    """What the file lies on; tmpfs and some network file systems have no page to drop."""
    mounts = [
        one for one in psutil.disk_partitions(all=True) if path.is_relative_to(one.mountpoint)
    ]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype


def test_a_file_that_was_read_is_cached(path):
    path.read_bytes()
    assert storage.cached(path) > 0.9


def test_an_evicted_file_is_cold_and_reading_caches_it_again(path):
    left, kept = storage.evict(path), file_system(path)
    if kept not in ("ext4", "xfs", "btrfs", "overlay") and left > 0.5:
        pytest.skip(f"{kept} keeps its pages")
    assert storage.cached(path) < 0.1
    with path.open("rb", buffering=0) as file:
        file.seek(2_000_000)
        file.read(1)
    assert 0 < storage.cached(path) < 1
    path.read_bytes()
    assert storage.cached(path) > 0.9


def test_on_tmpfs_it_has_no_effect():
    path = Path("/dev/shm", f"labkit-{os.getpid()}")
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs")
    try:
        path.write_bytes(b"x" * 100_000)
        assert storage.evict(path) == 1
    finally:
        path.unlink()


def test_an_empty_file_is_cached(tmp_path):
    (tmp_path / "empty").touch()
    assert storage.cached(tmp_path / "empty") == 1
