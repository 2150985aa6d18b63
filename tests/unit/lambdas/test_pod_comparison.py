"""Whether a pod that a cluster would store still has what was sent: defaults and additions are no loss."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.preflight.pod_comparison import lost_fields, lost_fields_of_container

NAMES = st.text("abc", min_size=1, max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.dictionaries(st.text("xyz", min_size=1), VALUES, max_size=4))
def test_nothing_is_lost_from_an_object_to_which_fields_are_added(sent: dict[str, Any], added: dict[str, Any]) -> None:
    assert lost_fields(sent, {**sent, **added}) == []


@pytest.mark.parametrize(
    "sent, answer",
    [
        ({"sizeLimit": "1024Mi"}, {"sizeLimit": "1Gi"}),  # the API writes the largest unit
        ({"cpu": "1000m"}, {"cpu": "1"}),
        ({"hostNetwork": False}, {}),
        ({"initContainers": []}, {"initContainers": [{"name": "mesh"}]}),
        (
            {"volumes": [{"name": "tmp", "emptyDir": {}}]},
            {"volumes": [{"name": "sa"}, {"name": "tmp", "emptyDir": {}}]},
        ),
        ({"ports": [{"containerPort": 80}]}, {"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
    ],
)
def test_what_the_api_writes_in_another_way_is_not_lost(sent: dict[str, Any], answer: dict[str, Any]) -> None:
    assert lost_fields(sent, answer) == []


@pytest.mark.parametrize(
    "sent, answer",
    [
        ({"args": ["--a", "--b"]}, {"args": ["--b", "--a"]}),
        ({"args": ["--a"]}, {"args": ["--a", "--b"]}),
        ({"args": ["--a"]}, {}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}),
        ({"env": [{"name": "A", "value": "sNaN"}]}, {"env": [{"name": "A", "value": "NaN"}]}),
        ({"securityContext": {"runAsUser": 1000}}, {"securityContext": {"runAsUser": 0}}),
        ({"hostNetwork": False}, {"hostNetwork": True}),
    ],
)
def test_a_changed_or_missing_value_is_lost(sent: dict[str, Any], answer: dict[str, Any]) -> None:
    assert lost_fields(sent, answer) == list(sent)


@pytest.mark.parametrize(
    "limits, lost",
    [
        ({"memory": "8Gi", "aws.amazon.com/neuron": "16"}, []),
        ({"memory": "9Gi", "aws.amazon.com/neuron": "16"}, []),
        ({"aws.amazon.com/neuron": "16"}, []),
        ({"memory": "4Gi", "aws.amazon.com/neuron": "16"}, ["resources.limits"]),
        ({"memory": "8Gi", "aws.amazon.com/neuron": "1"}, ["resources.limits"]),
        ({"memory": "8Gi"}, ["resources.limits"]),
        ({}, ["resources.limits"]),
    ],
)
def test_limits_may_be_raised_or_removed_but_not_lowered_and_devices_stay(
    limits: dict[str, str], lost: list[str]
) -> None:
    sent = {"image": "i", "resources": {"limits": {"memory": "8Gi", "aws.amazon.com/neuron": "16"}}}
    answer = {"image": "mirror/i", "imagePullPolicy": "Always", "resources": {"limits": limits}}
    assert lost_fields_of_container(sent, answer) == lost
