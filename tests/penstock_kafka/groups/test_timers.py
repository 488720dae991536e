"""Timers as values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_kafka.groups.timers import KeyedTimers

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("stop"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
    )
)


@given(OPERATIONS)
def test_timers_behave_as_a_dictionary_of_times(operations: list[tuple[str, str, int]]) -> None:
    timers: KeyedTimers[str] = KeyedTimers()
    model: dict[str, int] = {}
    for what, key, when in operations:
        if what == "start":
            timers.start(key, when)
            model[key] = when
        elif what == "stop":
            timers.stop(key)
            model.pop(key, None)
        else:
            popped = timers.pop(when)
            due = [at for at in model.values() if at <= when]
            assert (popped is None) == (not due)
            if popped is not None:
                assert model.pop(popped) == min(due)
        assert len(timers) == len(model)
        assert timers.next() == (min(model.values()) if model else None)
        assert all((key in timers) == (key in model) for key in "abc")


def test_timers_that_were_stopped_take_no_room() -> None:
    timers: KeyedTimers[int] = KeyedTimers()
    for key in range(10_000):
        timers.start(key, 1e9)
        timers.stop(key)
    assert len(timers._heap) < 100
    for when in range(10_000, 0, -1):
        timers.start(0, when)
    assert len(timers._heap) < 100
    assert timers.next() == 1
