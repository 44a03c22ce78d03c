import threading
import time

from labkit.telemetry.arrivals import RECENT, Arrivals


def test_every_source_that_is_alive_is_waited_for():
    arrivals = Arrivals(0.1)
    assert not arrivals.wait_for(0.0, deadline=0)
    arrivals.of_lines([[0, 5.0, [1.0]], {"cost": 1.0, "time": 9.0}])
    arrivals.of_text("[1,5.1,[2.0]]")
    assert arrivals.wait_for(5.0, deadline=0)
    assert not arrivals.wait_for(5.1, deadline=0)
    arrivals.of_text("[0,5.2,[1.0]]")
    assert arrivals.wait_for(5.1, deadline=0)


def test_a_moment_is_met_by_a_row_of_it_however_that_is_rounded():
    arrivals = Arrivals(0.1)
    arrivals.of_text("[0,5.1234,[1.0]]")
    assert arrivals.wait_for(5.12344, deadline=0)
    assert not arrivals.wait_for(5.1236, deadline=0)


def test_nobody_waits_for_a_source_without_devices_or_one_that_is_silent():
    arrivals = Arrivals(0.1)
    arrivals.of_lines([[0, 1.0], [1, 1.5, [3.0]]])
    assert arrivals.wait_for(1.5, deadline=0)
    arrivals.of_text(f"[2,{1.6 + RECENT},[3.0]]")
    assert arrivals.wait_for(1.55 + RECENT, deadline=0)


def test_who_waits_is_woken():
    arrivals = Arrivals(0.1)
    threading.Timer(0.05, arrivals.of_text, ["[0,2.0,[1.0]]"]).start()
    began = time.monotonic()
    assert arrivals.wait_for(2.0, deadline=60)
    assert time.monotonic() - began < 30
