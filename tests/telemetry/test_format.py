"""Lines of a recording: what is written is read; the rest is named, or passed over."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.telemetry import format as lines
from labkit.telemetry.format import Damage, Header, Span
from labkit.telemetry.metrics import METRICS, Device, Row, State

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(0, 1e12).map(lambda number: round(number, 4))


@given(
    header=st.builds(Header, texts, texts, st.floats(0.01, 60), numbers),
    span=st.builds(
        Span, texts, numbers, st.none() | numbers, st.none() | st.integers(1, 10**9),
        st.sampled_from(["you", "cell", "training", "keras"]),
    ),
    state=st.builds(
        State, numbers, texts, st.sampled_from(["", *METRICS]),
        st.sampled_from(["fine", "lost", "note", "implausible"]), texts,
    ),
    devices=st.lists(
        st.builds(
            Device, texts, texts, st.sampled_from(["gpu", "cpu"]), st.none() | numbers,
            st.none() | numbers, st.none() | texts,
        ),
        max_size=3,
    ),
)  # fmt: skip
def test_what_is_written_is_read(header, span, state, devices):
    assert lines.header_of(lines.parse(lines.header_line(header))) == header
    assert lines.span_of(lines.parse(lines.span_line(span))) == span
    assert lines.state_of(lines.parse(lines.state_line(state, 0.0))) == state
    written = lines.source_line("gpus", METRICS, devices)
    assert lines.source_of(lines.parse(written)) == ("gpus", tuple(METRICS), tuple(devices))
    assert "\n" not in written


def test_a_row_has_the_time_since_the_beginning_and_null_for_what_is_missing():
    row = Row(112.5, ((95.5, None, 41_000_000_000), (None, None, 0)))
    line = lines.row_line(1, row, 100.0)
    assert json.loads(line) == [1, 12.5, [95.5, None, 41_000_000_000], [None, None, 0]]
    assert lines.parse(line)[:2] == [1, 12.5]


def test_a_state_that_is_not_known_is_a_note():
    line = {"state": "on fire", "time": 1.0, "device": "gpu0", "metric": "", "says": "It burns."}
    assert lines.state_of(line) == State(1.0, "gpu0", "", "note", "It burns.")


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (lines.parse, b'{"span": "epo'),
        (lines.parse, b'"words"'),
        (lines.parse, b"\xff\xfe"),
        (lines.header_of, []),
        (lines.header_of, {"labkit": "trace", "format": 1}),
        (lines.header_of, {"labkit": "recording", "format": 2}),
        (lines.source_of, {"source": "gpus", "metrics": ["power"]}),
        (lines.source_of, {"source": "gpus", "metrics": [], "devices": ["gpu0"]}),
        (lines.span_of, {"span": "a", "start": True}),
        (lines.span_of, {"span": "a", "start": float("inf")}),
        (lines.state_of, {"state": "lost", "time": 1.0, "device": 0, "metric": "", "says": ""}),
    ],
)
def test_a_line_that_is_not_one_of_ours_is_damage(read, line):
    with pytest.raises(Damage):
        read(line)
