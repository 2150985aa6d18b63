"""kubetwin answers as a recorded v1.36.2 cluster did, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.kubernetes_contract import Outcome, cluster, known_differences, replay, scenarios


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """All scenarios are played once, side by side: one after the other they would take minutes."""
    folder = tmp_path_factory.mktemp("contract")
    with cluster(folder) as server:
        yield replay(server, folder)


@pytest.mark.parametrize("scenario", [path.stem for path in scenarios()])
def test_every_step_is_answered_as_recorded_but_for_the_known_differences(
    scenario: str, outcomes: dict[str, Outcome]
) -> None:
    known = known_differences()
    unexpected = [
        f"[{step.number}] {step.label}\n    " + "\n    ".join(step.faults)
        for step in outcomes[scenario].steps
        if step.faults and (scenario, step.number) not in known
    ]
    assert not unexpected, "\n".join(unexpected)


@pytest.mark.parametrize("scenario", [path.stem for path in scenarios()])
def test_a_difference_that_no_longer_exists_is_not_listed(scenario: str, outcomes: dict[str, Outcome]) -> None:
    matching = {step.number for step in outcomes[scenario].steps if not step.faults}
    stale = [
        number
        for (name, number), difference in known_differences().items()
        if name == scenario and number in matching and not difference.timing
    ]
    assert not stale, f"steps {stale} match now: take them out of known-differences.json"


def test_every_known_difference_names_a_recorded_step(outcomes: dict[str, Outcome]) -> None:
    recorded = {(name, step.number) for name, outcome in outcomes.items() for step in outcome.steps}
    assert set(known_differences()) <= recorded
