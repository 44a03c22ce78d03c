"""Reading archives: exactly the arrays that belong there, whatever the file tries."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.datasets.archives import (
    Arrays,
    DamagedError,
    look_into,
    read_cifar100,
    read_npz,
    read_stand_in,
    write_stand_in,
)


@pytest.fixture(scope="module")
def arrays(small, small_file):
    return read_npz(io.BytesIO(small_file), small)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("stand-in") / "x.npz"
    with path.open("wb") as file:
        write_stand_in(file, arrays)
    return path


def test_npz_arrays_are_what_numpy_reads(small, small_file, arrays):
    with np.load(io.BytesIO(small_file), allow_pickle=False) as oracle:
        for name, array in arrays._asdict().items():
            assert np.array_equal(array, oracle[name])
            assert not array.flags.writeable


def test_cifar_planes_become_pixels(small_cifar):
    """One red, one green and one blue plane, each with a row index in it."""
    source = replace(small_cifar, train=2, test=1)
    rows = np.repeat(np.arange(32, dtype=np.uint8), 32)
    record = np.concatenate([[3, 42], rows, rows + 100, rows + 200]).astype(np.uint8).tobytes()
    other = bytes([9, 99]) + bytes(3071) + b"\x07"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("train.bin", record + other), ("test.bin", record)):
            member = tarfile.TarInfo("cifar-100-binary/" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    packed.seek(0)
    found = read_cifar100(packed, source)
    assert found.y_train.tolist() == [42, 99]
    assert found.y_test.tolist() == [42]
    assert found.x_train[0, 5, 17].tolist() == [5, 105, 205]
    assert found.x_train[1, 31, 31].tolist() == [0, 0, 7]
    assert np.array_equal(found.x_test[0], found.x_train[0])


def test_a_stand_in_comes_back_as_it_was_written(small, arrays, stand_in):
    with stand_in.open("rb") as file:
        look_into(file, small)
        assert all(map(np.array_equal, read_stand_in(file, small), arrays))


def test_the_same_content_is_the_same_file(arrays):
    first, second = io.BytesIO(), io.BytesIO()
    write_stand_in(first, arrays)
    write_stand_in(second, arrays)
    assert first.getvalue() == second.getvalue()


def changed(arrays, **members):
    packed = io.BytesIO()
    np.savez(packed, **{**arrays._asdict(), **members})
    packed.seek(0)
    return packed


class Bomb:
    def __reduce__(self):
        return (exit, (3,))


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"x_train": np.zeros((299, 28, 28), np.uint8)}, "x_train has shape"),
        ({"x_train": np.zeros((300, 28, 28), np.float32)}, "x_train has shape"),
        ({"y_test": np.full(100, 10, np.uint8)}, "labels above 9"),
        ({"x_test": np.zeros((100, 28, 28), np.uint8)}, "images are empty"),
        ({"x_train": np.asfortranarray(np.ones((300, 28, 28), np.uint8))}, "x_train has shape"),
    ],
)
def test_arrays_of_another_form_are_refused(small, arrays, members, sentence):
    with pytest.raises(DamagedError, match=sentence):
        read_npz(changed(arrays, **members), small)


def test_nothing_is_unpickled(small, arrays):
    objects = np.array([Bomb()] * 300, dtype=object)
    packed = io.BytesIO()
    np.savez(packed, **{**arrays._asdict(), "y_train": objects})
    packed.seek(0)
    with pytest.raises(DamagedError):
        read_npz(packed, small)
    with pytest.raises(DamagedError):
        read_npz(io.BytesIO(pickle.dumps(Bomb())), small)
    with pytest.raises(DamagedError):
        read_cifar100(io.BytesIO(pickle.dumps(Bomb())), small)


def test_a_member_that_swells_is_not_unpacked(small, arrays):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays._asdict().items():
            member = io.BytesIO()
            np.save(member, array)
            swelling = bytes(50_000_000) if name == "x_train" else b""
            archive.writestr(f"{name}.npy", member.getvalue() + swelling)
    packed.seek(0)
    with pytest.raises(DamagedError, match="not as long as it says"):
        read_npz(packed, small)


def test_a_header_that_promises_terabytes_is_refused_before_memory_is_asked_for(small, arrays):
    header = io.BytesIO()
    form = {"descr": "|u1", "fortran_order": False, "shape": (10**6, 28, 28, 10**6)}
    np.lib.format.write_array_header_1_0(header, form)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in Arrays._fields:
            archive.writestr(f"{name}.npy", header.getvalue())
    packed.seek(0)
    with pytest.raises(DamagedError, match="has shape"):
        read_npz(packed, small)


def test_a_changed_content_with_a_right_zip_is_noticed(small, arrays, stand_in, tmp_path):
    lying = tmp_path / "lying.npz"
    images = arrays.x_train.copy()
    images[0, 0, 0] ^= 1
    with np.load(stand_in) as members:
        content = {**members, "x_train": images}
    np.savez(lying, **content)
    with lying.open("rb") as file, pytest.raises(DamagedError, match="checksum"):
        read_stand_in(file, small)


def test_a_stand_in_far_too_large_is_refused_unread(small, tmp_path):
    path = tmp_path / "large.npz"
    with path.open("wb") as file:
        file.truncate(10**9)
    with path.open("rb") as file, pytest.raises(DamagedError, match="larger than"):
        read_stand_in(file, small)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_stand_in_is_refused_or_harmless(small, arrays, stand_in, data):
    """Cut anywhere, or with any byte changed: never a crash, never other data."""
    content = bytearray(stand_in.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        # The table of contents lies at the end; it deserves as many hits as all the rest.
        region = data.draw(st.sampled_from([len(content), 600, 200]))
        at = len(content) - 1 - data.draw(st.integers(0, region - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    path = stand_in.with_name("damaged.npz")
    path.write_bytes(content)
    with path.open("rb") as file:
        try:
            found = read_stand_in(file, small)
        except DamagedError:
            return
    assert all(map(np.array_equal, found, arrays))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_cifar_archive_is_refused_or_read_in_form(small_cifar, small_cifar_file, data):
    """Its checksum is judged before; this is the second line of defence."""
    content = bytearray(small_cifar_file)
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read_cifar100(io.BytesIO(bytes(content)), small_cifar)
    except DamagedError:
        return
    assert found.x_train.shape == (200, 32, 32, 3)
    assert found.y_test.max() < 100
