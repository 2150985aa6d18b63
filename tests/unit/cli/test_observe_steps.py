"""Steps are in order and each there once, however a log repeats them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from trainflow.client.observe.steps import StepsInOrder
from trainflow.observed.step import Step
from trainflow.record.published import latest_of_each_step

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 9))))
def test_the_steps_are_those_of_all_lines_at_any_moment(lines: list[tuple[int, float]]) -> None:
    steps, read = StepsInOrder(), []
    for number, loss in lines:
        read.append(Step(NOW, 0, number, loss, None, None))
        steps.add(read[-1])
        assert list(steps.all()) == latest_of_each_step(read)


def test_nothing_is_copied_while_nothing_is_logged() -> None:
    steps = StepsInOrder()
    steps.add(Step(NOW, 0, 1, 2.0, None, None))

    assert steps.all() is steps.all()
