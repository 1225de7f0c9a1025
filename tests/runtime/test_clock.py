import hypothesis.strategies as st
from hypothesis import given

from gossamer.runtime.transport.socket_receiver import SAMPLES, ClockOffset

times = st.integers(0, 10**12)
delays = st.integers(0, 10**9)


def probe(offset, start, there, rest, back, shift):
    """Take the four times of a probe to a clock that is ahead by `shift`."""
    t1 = start + there
    t2 = t1 + rest
    offset.add(start, t1 + shift, t2 + shift, t2 + back)


def test_nothing_is_known_before_the_first_probe():
    assert ClockOffset().value is None


@given(times, delays, delays, delays, st.integers(-(10**15), 10**15))
def test_a_shift_is_found_to_within_half_the_round_trip(start, there, rest, back, shift):
    offset = ClockOffset()
    probe(offset, start, there, rest, back, shift)
    assert abs(offset.value + shift) <= (there + back) / 2 + 1
    equally_long = ClockOffset()
    probe(equally_long, start, there, rest, there, shift)
    assert equally_long.value == -shift


@given(st.lists(st.tuples(delays, delays), min_size=1, max_size=SAMPLES), st.integers(-(10**12), 10**12))
def test_the_shortest_round_trip_is_believed(ways, shift):
    offset = ClockOffset()
    for there, back in ways:
        probe(offset, 0, there, 5, back, shift)
    assert abs(offset.value + shift) <= min(there + back for there, back in ways) / 2 + 1


def test_a_clock_that_drifts_is_followed():
    offset = ClockOffset()
    probe(offset, 0, 1, 1, 1, shift=500)  # the best probe there ever was
    for _ in range(SAMPLES - 1):
        probe(offset, 0, 100, 1, 100, shift=900)
    assert offset.value == -500
    probe(offset, 0, 100, 1, 100, shift=900)
    assert offset.value == -900


def test_times_that_no_clock_can_have_shown_are_ignored():
    offset = ClockOffset()
    offset.add(0, 0, 100, 50)  # answered for longer than it was away
    offset.add(0, 100, 50, 50)  # answered before it arrived
    assert offset.value is None
