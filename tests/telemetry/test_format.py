"""Lines of a recording: what is written is read; the rest is named, or passed over."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.telemetry.format import (
    Cost,
    Damage,
    End,
    Header,
    Source,
    Span,
    line,
    read_line,
    row_line,
)
from labkit.telemetry.metrics import METRICS, Device, Row, State

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(0, 1e12).map(lambda number: round(number, 4))
devices = st.builds(
    Device, texts, texts, st.sampled_from(["gpu", "cpu"]), st.none() | numbers,
    st.none() | numbers, st.none() | texts,
)  # fmt: skip


@given(
    st.builds(Header, texts, texts, st.floats(0.01, 60), numbers, texts)
    | st.builds(Span, texts, numbers, st.none() | numbers, st.none() | st.integers(1, 10**9))
    | st.builds(
        State, numbers, texts, st.sampled_from(["", *METRICS]),
        st.sampled_from(["fine", "lost", "note"]), texts,
    )
    | st.builds(
        Source, texts, st.just(tuple(METRICS)), st.lists(devices, max_size=3).map(tuple)
    )
    | st.builds(Cost, numbers, numbers)
    | st.builds(End, numbers)
)  # fmt: skip
def test_what_is_written_is_read(value):
    assert read_line(line(value)) == value
    assert "\n" not in line(value)


def test_a_row_has_the_time_since_the_beginning_and_null_for_what_is_missing():
    row = Row(112.5, ((95.5, None, 41_000_000_000), (None, None, 0)))
    written = [1, 12.5, [95.5, None, 41_000_000_000], [None, None, 0]]
    assert json.loads(row_line(1, row, 100.0)) == read_line(row_line(1, row, 100.0)) == written


@pytest.mark.parametrize(
    "text",
    [
        b'{"span": "epo',
        b'"words"',
        b"\xff\xfe",
        '{"labkit": "recording", "format": 2}',
        '{"labkit": "recording", "format": 1, "where": "here"}',
        '{"source": "gpus", "metrics": ["power"]}',
        '{"source": "gpus", "metrics": "power", "devices": []}',
        '{"source": "gpus", "metrics": [], "devices": ["gpu0"]}',
        '{"span": "a", "start": true}',
        '{"span": "a", "start": Infinity}',
        '{"state": "lost", "time": 1.0, "device": 0, "metric": "", "says": ""}',
    ],
)
def test_a_line_that_is_not_one_of_ours_is_damage(text):
    with pytest.raises(Damage):
        read_line(text)
