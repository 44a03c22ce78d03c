"""What every room uses: kinds, written quantities, stored values, checked arguments."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import plain
from labkit.arguments import bytes_per_second, number, numbers, one_of, whole
from labkit.kinds import Kind, LabError, Quantity, bytes_text, measured, rate_text, seconds_text

SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86_400.0}
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def value_of(text, units):
    parts = text.split()
    return sum(
        float(amount) * units[unit] for amount, unit in zip(parts[::2], parts[1::2], strict=True)
    )


@given(st.floats(1e-9, 1e6))
def test_a_time_keeps_three_digits(seconds):
    hours = 3600 <= seconds < 100 * 3600  # to the minute
    accuracy = 30.5 / seconds if hours else 0.0051
    assert value_of(seconds_text(seconds), SECONDS) == pytest.approx(seconds, rel=accuracy)


@given(st.integers(0, 10**15))
def test_a_size_keeps_three_digits(count):
    text = bytes_text(count)
    assert value_of(text, BYTES) == pytest.approx(count, rel=0.0051)
    assert len(text.split()[0].replace(".", "")) <= 4


def test_hours_are_rounded_and_what_is_no_finite_number_is_unknown():
    assert (seconds_text(8627.6), seconds_text(0.9997)) == ("2 h 24 min", "1.00 s")
    assert (seconds_text(math.nan), bytes_text(-math.inf)) == ("unknown time", "-∞ B")
    assert (rate_text(math.inf), rate_text(123_456)) == ("unknown images/s", "123,000 images/s")
    assert str(Quantity(1.5)) == "1.5"


def test_a_long_error_breaks_between_words():
    """JupyterLab would break it inside a word."""
    said = "a running TensorFlow cannot be split. " * 9
    (shown,) = LabError(said)._render_traceback_()
    assert " ".join(shown.split("\n")) == f"LabError: {said}".rstrip()
    assert max(map(len, shown.split("\n"))) <= 96


@dataclass(frozen=True)
class Example:
    kind: Kind
    rows: tuple[tuple[float, ...], ...]
    pair: tuple[int, str]
    by_name: dict[str, Kind]
    when: str = ""


kinds = st.builds(
    Kind, name=st.sampled_from(("measured", "recorded", "modelled")), source=st.text()
)
examples = st.builds(
    Example,
    kind=kinds,
    rows=st.lists(st.lists(st.floats(allow_nan=False)).map(tuple)).map(tuple),
    pair=st.tuples(st.integers(), st.text()),
    by_name=st.dictionaries(st.text(), kinds),
)


@settings(max_examples=30)
@given(examples)
def test_what_is_written_is_read_again(tmp_path_factory, example):
    path = plain.write(tmp_path_factory.mktemp("written") / "example.json", example)
    assert plain.read(path, Example, "an example") == example


@pytest.mark.parametrize(
    ("old", "new"),
    [('"labkit": 1', '"labkit": 2'), ('"here"', "7"), ("}", "")],
)
def test_a_file_that_cannot_be_used_is_explained(tmp_path, old, new):
    path = plain.write(tmp_path / "kind.json", measured("here"))
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(LabError, match="cut short"):
        plain.read(path, Kind, "a kind")
    with pytest.raises(LabError, match="as an example"):
        plain.read(path, Example, "an example")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "kind.json"
    plain.atomic_write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        plain.atomic_write(path, "\ud800")
    assert path.read_text() == "old"
    plain.atomic_write(path, b"new")
    assert path.read_text() == "new"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: plain.atomic_write(path, f"{number}"), range(400)))
    assert list(tmp_path.iterdir()) == [path]
    for place in (tmp_path, tmp_path / "nowhere" / "kind.json"):
        with pytest.raises(LabError, match="cannot be written"):
            plain.write(place, measured("here"))


@pytest.mark.parametrize("value", [True, 2.0, "2", 0, 9])
def test_a_whole_number_is_an_integer_within_its_limits(value):
    assert whole("n", 8, at_least=1, at_most=8) == 8
    with pytest.raises(LabError, match="n must be a whole number from 1 to 8, got"):
        whole("n", value, at_least=1, at_most=8)


@pytest.mark.parametrize(
    ("value", "limits"),
    [(0, {"above": 0}), (1, {"below": 1}), (math.inf, {}), (-1, {"at_least": 0}), ("1", {}),
     (10**400, {}), (np.True_, {}), (1e-300, {"above": 0}), (2, {"at_most": 1}),
     (-math.inf, {"infinite": True})],
)  # fmt: skip
def test_a_number_is_finite_and_within_its_limits(value, limits):
    assert number("rate", 0.5, above=0, below=1) == 0.5
    assert numbers("rates", (0, np.float32(1)), at_least=0, at_most=1) == [0, 1]
    assert number("rate", math.inf, above=0, infinite=True) == math.inf
    with pytest.raises(LabError, match="rate must be a finite number"):
        number("rate", value, **limits)


@pytest.mark.parametrize("words", ["100 Mbps", "fast", "-1 GB/s", "nan GB/s", "1e99 GB/s", "", 0])
def test_a_bandwidth_is_a_number_or_words_with_a_unit(words):
    assert [bytes_per_second("link", one) for one in (1e6, "8 Mbit/s", "1 MB/s")] == [1e6] * 3
    with pytest.raises(LabError, match="link must be"):
        bytes_per_second("link", words)


def test_one_of_names_the_options():
    assert one_of("mode", "sync", ("sync", "async")) == "sync"
    with pytest.raises(LabError, match="mode must be one of 'sync', 'async', got 'fast'"):
        one_of("mode", "fast", ("sync", "async"))
