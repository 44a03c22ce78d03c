"""The door: what a student gets, whatever the disk, the machine and the neighbours do."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import labkit.datasets
from labkit.datasets import cache as cache_module
from labkit.datasets import door
from labkit.datasets.cache import alone, keep
from labkit.kinds import LabError

# What every child process needs to see the same small data set as the test.
CHILD = """
import hashlib, json, os, sys, time
from dataclasses import replace
from pathlib import Path
from labkit.datasets import door, sources
from labkit.datasets.draws import Draws

def draw(count, split, advance):
    draws = Draws(split)
    return draws.octets(count * 784).reshape(count, 28, 28), draws.labels(count, 10)

source = replace(sources.MNIST, train=300, test=100, drawn_sha256="", draw=draw)
folder = Path(sys.argv[1])
"""


def child(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process, seconds=60):
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    return output


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# What comes out


def test_unpacks_like_keras_and_describes_itself_without_a_path(small, cache):
    data = door.enter(small, cache)
    (x_train, y_train), (x_test, y_test) = data
    assert (x_train.shape, y_train.shape) == ((300, 28, 28), (300,))
    assert (x_test.shape, y_test.shape) == ((100, 28, 28), (100,))
    text = "MNIST stand-in (drawn by labkit): 300 train, 100 test, 28×28, 10 classes"
    assert repr(data) == text
    assert str(data).splitlines() == [text, *data.notes]  # print() says why it is a stand-in
    assert data.notes
    bundle = data._repr_mimebundle_()
    assert bundle["text/plain"] == text
    assert "drawn by labkit, because" in bundle["text/html"]
    assert "LABKIT_OFFLINE is set" in bundle["text/html"]
    assert str(cache) not in bundle["text/html"]


def test_published_files_are_called_so(small, small_file, cache):
    (cache / "mnist.npz").write_bytes(small_file)
    data = door.enter(small, cache)
    assert (data.origin, data.label, data.notes) == ("cache", "MNIST", ())
    assert repr(data).startswith("MNIST, the published files: 300 train")


def test_arrays_cannot_be_changed_by_a_lesson(small, cache):
    for _ in range(2):  # as drawn, and as read from the cache
        for images, labels in door.enter(small, cache):
            with pytest.raises(ValueError, match="read-only"):
                images[0] = 0
            with pytest.raises(ValueError, match="read-only"):
                labels[0] = 0
        door._known.clear()


def test_a_rank_without_a_way_out_does_not_spoil_the_download_of_the_notebook(
    small, cache, monkeypatch
):
    monkeypatch.delenv("LABKIT_OFFLINE", raising=False)
    monkeypatch.setenv("LABKIT_NETWORK", "own")
    data = door.enter(small, cache)
    assert data.origin == "stand-in"
    assert "Get MNIST in the notebook first" in " ".join(data.notes)
    monkeypatch.delenv("LABKIT_NETWORK")
    assert door._may_download(small, cache)


def test_second_call_in_a_kernel_gives_the_same_object(small, cache):
    assert door.enter(small, cache) is door.enter(small, cache)


def test_a_drawn_stand_in_is_read_by_the_next_kernel(small, cache, monkeypatch):
    first = door.enter(small, cache)
    door._known.clear()
    monkeypatch.setattr(door, "_draw", None)  # drawing again would fail
    second = door.enter(small, cache)
    assert second is not first
    assert np.array_equal(first.x_train, second.x_train)
    assert second.origin == "stand-in"


def test_keras_cache_is_read_where_it_lies(small, small_file, cache, tmp_path):
    keras = tmp_path / "keras" / "datasets"
    keras.mkdir(parents=True)
    (keras / "mnist.npz").write_bytes(small_file)
    data = door.enter(small, cache)
    assert data.origin == "cache"
    assert names(cache) == []
    assert door.at_hand(small, cache) == "real"


def test_a_foreign_file_in_keras_cache_is_named_and_left_alone(small, cache, tmp_path):
    keras = tmp_path / "keras" / "datasets"
    keras.mkdir(parents=True)
    (keras / "mnist.npz").write_bytes(b"other")
    data = door.enter(small, cache)
    assert data.origin == "stand-in"
    assert "mnist.npz in Keras' cache is not used" in data.notes[0]
    assert (keras / "mnist.npz").read_bytes() == b"other"


def test_a_drawing_that_differs_from_the_reference_is_said_every_time(small, cache, monkeypatch):
    from dataclasses import replace

    other = replace(small, drawn_sha256="0" * 64)
    data = door.enter(other, cache)
    assert "differs from the reference one" in " ".join(data.notes)
    # The next kernel takes it from the cache, and says the same.
    door._known.clear()
    monkeypatch.setattr(door, "_draw", None)
    again = door.enter(other, cache)
    assert sorted(again.notes) == sorted(data.notes)
    assert door.at_hand(other, cache) == "stand-in"


def test_a_drawing_of_another_version_is_drawn_again_once(small, cache):
    from dataclasses import replace

    from labkit.datasets.archives import Arrays, content_sha256

    good = door.enter(small, cache)
    arrays = Arrays(good.x_train, good.y_train, good.x_test, good.y_test)
    pinned = replace(small, drawn_sha256=content_sha256(arrays))

    def older(count, split, advance):
        images, labels = small.draw(count, split, advance)
        return 255 - images, labels

    for meant in ("", "1" * 64):  # as an older labkit left it, and as one with another reference
        door._known.clear()
        (cache / small.stand_in).unlink()
        door.enter(replace(small, draw=older, drawn_sha256=meant), cache)
        assert door.at_hand(pinned, cache) == "none"
        door._known.clear()
        data = door.enter(pinned, cache)
        assert np.array_equal(data.x_train, good.x_train)
        assert "drawn again: another version of labkit drew it" in " ".join(data.notes)
        door._known.clear()
        assert "drawn again" not in " ".join(door.enter(pinned, cache).notes)


def test_a_picture_shows_images_with_their_labels(small, cache):
    data = door.enter(small, cache)
    picture = data.picture(rows=1, columns=3)
    assert picture.png.startswith(b"\x89PNG")
    assert picture.alt.startswith("MNIST stand-in (drawn by labkit): the first 3 training images.")
    assert picture.alt.endswith(f"{', '.join(map(str, data.y_train[:3]))}.")
    with pytest.raises(LabError, match="rows=0 cannot be drawn"):
        data.picture(rows=0)


# The public functions


def test_public_functions_use_the_cache_folder_and_say_what_is_there(full_cache, mnist_stand_in,
                                                                     monkeypatch):  # fmt: skip
    monkeypatch.setenv("LABKIT_CACHE", str(full_cache))
    assert labkit.datasets.cache_folder() == full_cache
    assert labkit.datasets.cached("mnist") == "stand-in"
    data = labkit.datasets.mnist()
    assert np.array_equal(data.x_test, mnist_stand_in.x_test)
    assert labkit.datasets.mnist(folder=full_cache) is data


def test_nothing_is_cached_at_first_and_unknown_names_are_refused():
    assert labkit.datasets.cached("CIFAR-100") == "none"
    with pytest.raises(LabError, match="no data set 'imagenet'"):
        labkit.datasets.cached("imagenet")


@pytest.mark.parametrize("folder", [3, b"x", "a\0b"])
def test_a_folder_that_is_none_is_refused_in_words(folder):
    with pytest.raises(LabError, match="is not a folder"):
        labkit.datasets.mnist(folder=folder)


def test_a_file_given_as_folder_is_refused_in_words(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("")
    with pytest.raises(LabError, match=r"data.txt' is a file. Give the folder"):
        labkit.datasets.mnist(folder=path)


def test_without_a_home_folder_the_temporary_one_serves_and_that_is_said(
    monkeypatch, small, tmp_path
):
    monkeypatch.delenv("LABKIT_CACHE")
    # What platformdirs answers to a user without HOME and without an entry in /etc/passwd.
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"~/.cache/{name}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = labkit.datasets.cache_folder()
    assert folder.parent == tmp_path
    assert "There is no home folder" in door.enter(small, folder).notes[0]


def test_import_loads_no_numpy():
    code = "import sys, labkit.datasets; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


# Disks


def test_a_damaged_stand_in_is_named_and_drawn_again(small, cache):
    good = door.enter(small, cache)
    path = cache / "mnist-stand-in-1.npz"
    content = path.read_bytes()
    for damage in (content[: len(content) // 2], b"", content[:-50] + bytes(50)):
        path.write_bytes(damage)
        door._known.clear()
        data = door.enter(small, cache)
        assert "mnist-stand-in-1.npz in labkit's cache was not used and drawn again" in " ".join(
            data.notes
        )
        assert np.array_equal(data.x_train, good.x_train)
        assert path.read_bytes() == content


@contextmanager
def mounted(folder, *options):
    """A small file system in memory, where this machine lets us have one."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "labkit-test", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip("this machine does not let tests mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_costs_the_file_and_not_the_data(small, cache):
    with mounted(cache, "-o", "size=64k"):
        data = door.enter(small, cache)
        assert "could not be kept in the cache (the disk is full)" in " ".join(data.notes)
        assert names(cache) == [".mnist.lock"]
    assert len(data.x_train) == 300


def test_a_read_only_disk_costs_the_file_and_not_the_data(small, cache):
    with mounted(cache, "-o", "ro"):
        data = door.enter(small, cache)
        assert "could not be kept in the cache (the disk is read-only)" in " ".join(data.notes)
    assert len(data.x_train) == 300


def test_a_cache_that_is_a_file_costs_nothing_else(small, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    data = door.enter(small, path)
    assert "(it is a file, not a folder)" in " ".join(data.notes)
    assert path.read_text() == "mine"


def refuse(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_only_when_written_through_costs_the_file_and_not_the_data(
    small, cache, monkeypatch
):
    damaged = cache / small.stand_in
    damaged.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", refuse)
    data = door.enter(small, cache)
    assert "(the disk is full)" in " ".join(data.notes)
    assert len(data.x_train) == 300
    assert damaged.read_bytes() == b"old"
    assert names(cache) == [".mnist.lock", small.stand_in]


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace", "tempfile.mkstemp"])
def test_a_disk_that_refuses_late_leaves_the_old_file_and_no_other(call, cache, monkeypatch):
    path = cache / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(call, refuse)
    with pytest.raises(OSError, match="No space"):
        keep(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"old"
    assert names(cache) == ["x"]


def test_a_disk_that_refuses_on_close_leaves_the_old_file_and_no_other(cache, monkeypatch):
    path = cache / "x"
    path.write_bytes(b"old")
    real = os.fdopen

    def opened(*args):
        file = real(*args)

        class Late:
            def __enter__(self):
                return file

            def __exit__(self, *exc):
                file.close()
                refuse()

        return Late()

    monkeypatch.setattr(os, "fdopen", opened)
    with pytest.raises(OSError, match="No space"):
        keep(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"old"
    assert names(cache) == ["x"]


def test_what_a_killed_writer_left_is_swept_when_it_is_old(small, cache):
    old, fresh, foreign = cache / ".a-1.labkit-part", cache / ".b-2.labkit-part", cache / "c.part"
    for path in (old, fresh, foreign):
        path.write_bytes(b"half")
    for path in (old, foreign):
        os.utime(path, (time.time() - 3600,) * 2)
    door.enter(small, cache)
    assert [path.exists() for path in (old, fresh, foreign)] == [False, True, True]


# Neighbours


def test_processes_that_start_together_get_the_same_data_drawn_once(cache, tmp_path):
    code = """
    drawn = Path(sys.argv[2])
    def counted(count, split, advance):
        with drawn.open("a") as file:
            file.write(f"{split}")
        return draw(count, split, advance)
    source = replace(source, draw=counted)
    print("ready", flush=True)
    sys.stdin.readline()
    data = door.enter(source, folder)
    print(data.origin, hashlib.sha256(data.x_train.tobytes()).hexdigest())
    """
    drawn = tmp_path / "drawn"
    crowd = [child(code, cache, drawn) for _ in range(4)]
    try:
        for one in crowd:
            assert one.stdout.readline() == "ready\n"
        for one in crowd:
            one.stdin.write("go\n")
            one.stdin.flush()
        found = {finish(one) for one in crowd}
    finally:
        for one in crowd:
            one.kill()
    assert len(found) == 1
    assert found.pop().startswith("stand-in ")
    assert drawn.read_text() == "01"
    assert names(cache) == [".mnist.lock", "mnist-stand-in-1.npz"]


def test_a_killed_holder_gives_the_lock_back(cache):
    code = """
    from labkit.datasets.cache import alone
    with alone(folder, "mnist", 5) as held:
        print(held, flush=True)
        time.sleep(60)
    """
    holder = child(code, cache)
    try:
        assert holder.stdout.readline() == "True\n"
        with alone(cache, "mnist", wait_s=0) as held:
            assert not held
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10)
        with alone(cache, "mnist", wait_s=10) as held:
            assert held
    finally:
        holder.kill()
        holder.wait()


def test_a_holder_that_never_ends_is_not_waited_for_beyond_the_deadline(small, cache, monkeypatch):
    monkeypatch.setattr(cache_module, "WAIT_S", 0.1)
    with alone(cache, "mnist", wait_s=0) as held:
        assert held
        assert len(door.enter(small, cache).x_train) == 300
    assert (cache / "mnist-stand-in-1.npz").exists()


def test_a_writer_killed_in_the_middle_leaves_nothing_that_a_reader_takes_for_whole(small, cache):
    code = """
    from labkit.datasets.cache import keep
    def write(file):
        file.write(b"half of it")
        file.flush()
        print("half", flush=True)
        time.sleep(60)
    keep(folder / source.stand_in, write)
    """
    writer = child(code, cache)
    try:
        assert writer.stdout.readline() == "half\n"
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.wait()
    assert not (cache / small.stand_in).exists()
    assert door.at_hand(small, cache) == "none"
    data = door.enter(small, cache)
    assert data.notes == (data.notes[0],)  # nothing but the word about LABKIT_OFFLINE
    assert door.at_hand(small, cache) == "stand-in"


def test_threads_get_one_object(small, cache):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: door.enter(small, cache), range(4)))
    assert len({id(data) for data in found}) == 1


def test_the_failure_note_is_plain_json(cache):
    cache_module.remember_failure(cache, "mnist")
    assert set(json.loads((cache / "mnist.no-download").read_text())) == {"failed_at"}
    assert cache_module.failed_lately(cache, "mnist")
    for broken in ("", "[]", '{"failed_at": "x"}', '{"failed_at": null}'):
        Path(cache / "mnist.no-download").write_text(broken)
        assert not cache_module.failed_lately(cache, "mnist")
