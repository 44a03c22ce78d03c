"""Downloads: the right file or a reason, within the deadlines, and never half a file."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import numpy as np
import pytest

from labkit.datasets import door
from labkit.datasets.cache import alone
from labkit.datasets.download import Deadlines, NotFetchedError, fetch


@pytest.fixture(autouse=True)
def online(monkeypatch):
    monkeypatch.delenv("LABKIT_OFFLINE")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def offered(small, small_file, site):
    """The small data set, offered by a web server on this machine."""
    site.files["/mnist.npz"] = small_file
    return replace(small, url=site.url + "/mnist.npz")


def visible(folder):
    """What a student sees in the folder."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_good_file_is_kept_as_it_came_and_read_from_the_cache_next_time(
    offered, small_file, cache, site
):
    data = door.enter(offered, cache)
    assert (data.origin, data.label, data.notes) == ("download", "MNIST", ())
    assert (cache / "mnist.npz").read_bytes() == small_file
    door._known.clear()
    again = door.enter(offered, cache)
    assert (again.origin, again.notes) == ("cache", ())
    assert np.array_equal(again.x_train, data.x_train)
    assert site.asked == ["/mnist.npz"]


def test_a_cifar_archive_is_downloaded_and_read(small_cifar, small_cifar_file, cache, site):
    site.files["/c.tar.gz"] = small_cifar_file
    data = door.enter(replace(small_cifar, url=site.url + "/c.tar.gz"), cache)
    assert data.origin == "download"
    assert data.x_train.shape == (200, 32, 32, 3)


def test_a_redirect_is_followed(offered, cache, site):
    site.faults["/old"] = f"moved to {site.url}/mnist.npz"
    assert door.enter(replace(offered, url=site.url + "/old"), cache).origin == "download"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("cut", "the connection ended after"),
        ("stalls", "the connection stood still"),
        ("mute", "the server did not answer"),
        ("slow", "it took too long"),
        ("no length", "another checksum than the published file"),
        ("moved to /mnist.npz", "the server answered 302"),
    ],
)
def test_what_is_not_the_whole_right_file_leaves_a_stand_in_and_a_reason(
    fault, sentence, offered, small_file, cache, site
):
    site.faults["/mnist.npz"] = fault
    if fault == "no length":
        site.files["/mnist.npz"] = small_file[:-1] + b"?"
    if fault == "slow":
        offered = replace(offered, deadlines=Deadlines(2.0, 2.0, 0.6))
    data = door.enter(offered, cache)
    assert data.origin == "stand-in"
    assert data.label == "MNIST stand-in (drawn by labkit)"
    assert sentence in " ".join(data.notes)
    assert visible(cache) == ["mnist-stand-in-1.npz", "mnist.no-download"]


def test_a_page_in_place_of_the_file_is_named_as_such(offered, cache, site):
    site.files["/mnist.npz"] = b"<html>Please sign in to the guest network</html>"
    (note,) = door.enter(offered, cache).notes
    assert "the server offers 48 bytes where the file has" in note
    assert "login page" in note


def test_a_body_without_end_is_cut_off(offered, small_file, cache, site):
    site.files["/mnist.npz"] = small_file * 3
    site.faults["/mnist.npz"] = "no length"
    assert "sent more than" in door.enter(offered, cache).notes[0]


@pytest.mark.parametrize(
    ("path", "sentence"), [("/gone", "the server answered 404"), (None, "refused")]
)
def test_a_missing_file_and_a_missing_server_are_told_apart(path, sentence, offered, cache, site):
    url = site.url + path if path else "http://127.0.0.1:9/x"
    assert sentence in door.enter(replace(offered, url=url), cache).notes[0]


def test_a_name_that_nobody_knows_means_no_internet(offered, cache):
    data = door.enter(replace(offered, url="http://nowhere.invalid/mnist.npz"), cache)
    assert "there is no internet here" in data.notes[0]


def test_a_failure_is_remembered_by_the_next_kernel_and_forgotten_after_an_hour(
    offered, cache, site, monkeypatch
):
    good = site.files.pop("/mnist.npz")
    door.enter(offered, cache)
    site.files["/mnist.npz"] = good

    def new_kernel():
        door._known.clear()
        door._failed.clear()
        return door.enter(offered, cache)

    data = new_kernel()
    assert len(site.asked) == 1
    assert "failed less than an hour ago and was not tried again" in data.notes[0]
    monkeypatch.setattr("labkit.datasets.cache.AGAIN_S", 0.0)
    assert new_kernel().origin == "download"


def test_a_failure_is_remembered_in_the_kernel_where_the_folder_keeps_nothing(
    offered, tmp_path, site
):
    site.files.clear()
    for name in ("a", "b"):
        not_a_folder = tmp_path / name
        not_a_folder.write_text("")
        assert door.enter(offered, not_a_folder).origin == "stand-in"
    assert len(site.asked) == 1


def test_a_clock_that_was_wrong_does_not_forbid_downloads(offered, cache):
    (cache / "mnist.no-download").write_text('{"failed_at": 99999999999}')
    assert door.enter(offered, cache).origin == "download"


def test_labkit_offline_asks_nobody(offered, cache, site, monkeypatch):
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    data = door.enter(offered, cache)
    assert data.origin == "stand-in"
    assert "LABKIT_OFFLINE" in data.notes[0]
    assert site.asked == []
    assert visible(cache) == ["mnist-stand-in-1.npz"]


def test_a_kernel_with_a_stand_in_downloads_once_it_may(offered, cache, site, monkeypatch):
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    stand_in = door.enter(offered, cache)
    assert door.enter(offered, cache) is stand_in
    monkeypatch.delenv("LABKIT_OFFLINE")
    good = site.files.pop("/mnist.npz")
    failed = door.enter(offered, cache)
    assert (failed.origin, len(site.asked)) == ("stand-in", 1)
    assert door.enter(offered, cache) is failed
    site.files["/mnist.npz"] = good
    monkeypatch.setattr("labkit.datasets.cache.AGAIN_S", 0.0)
    data = door.enter(offered, cache)
    assert data.origin == "download"
    assert door.enter(offered, cache) is data


def test_a_damaged_file_is_replaced_by_a_good_one_only(offered, small_file, cache, site):
    damaged = cache / "mnist.npz"
    damaged.write_bytes(small_file[:-1] + b"?")
    site.faults["/mnist.npz"] = "cut"
    data = door.enter(offered, cache)
    assert data.origin == "stand-in"
    assert "mnist.npz in labkit's cache is not used: it is damaged" in data.notes[0]
    assert damaged.read_bytes() == small_file[:-1] + b"?"
    site.faults.clear()
    door._known.clear()
    door._failed.clear()
    (cache / "mnist.no-download").unlink()
    assert door.enter(offered, cache).origin == "download"
    assert damaged.read_bytes() == small_file


def test_a_download_that_cannot_be_kept_still_serves(offered, tmp_path, site):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("mine")
    data = door.enter(offered, in_the_way / "deeper")
    assert data.origin == "download"
    assert "it is a file, not a folder" in data.notes[0]
    assert in_the_way.read_text() == "mine"


def test_what_the_sink_raises_goes_through_and_the_reader_ends(offered, site):
    class Full(io.BytesIO):
        def write(self, piece):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fetch(offered.url, offered.sha256, offered.size, Full(), offered.deadlines)
    readers = [t for t in threading.enumerate() if t.name == "labkit download"]
    for reader in readers:
        reader.join(10)
        assert not reader.is_alive()


def test_an_interrupt_leaves_no_file_and_no_lock(offered, cache, site, monkeypatch):
    def interrupted(*args, **kwargs):
        args[3].write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(door, "fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        door.enter(offered, cache)
    assert visible(cache) == []
    with alone(cache, "mnist", wait_s=0) as held:
        assert held
    assert not door._busy.locked()


def test_progress_counts_bytes(offered, site):
    told, sink = [], io.BytesIO()
    fetch(offered.url, offered.sha256, offered.size, sink, offered.deadlines, told.append)
    assert told == sorted(told)
    assert told[-1] == offered.size == len(sink.getvalue())


def test_a_wrong_checksum_is_an_error_of_fetch(offered, site):
    with pytest.raises(NotFetchedError, match="checksum"):
        fetch(offered.url, "0" * 64, offered.size, io.BytesIO(), offered.deadlines)
