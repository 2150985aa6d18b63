from __future__ import annotations

from typing import Any

import pytest
from kubetwin.model.decoding import DecodeError, decode
from kubetwin.model.quantity import BadQuantity, format_quantity, parse_quantity

POD, JOB, CONFIG_MAP = "io.k8s.api.core.v1.Pod", "io.k8s.api.batch.v1.Job", "io.k8s.api.core.v1.ConfigMap"


@pytest.mark.parametrize(
    ("type_name", "value", "field"),
    [
        (
            POD,
            {"spec": {"containers": [{"env": [{"value": 1}]}]}},
            "number into Go struct field EnvVar.spec.containers.env.value of type string",
        ),
        (JOB, {"spec": {"parallelism": "two"}}, "string into Go struct field JobSpec.spec.parallelism of type int32"),
        (CONFIG_MAP, {"data": {"a": 1}}, "number into Go struct field ConfigMap.data of type string"),
        (CONFIG_MAP, {"data": ["a"]}, "array into Go struct field ConfigMap.data of type map[string]string"),
        (POD, {"spec": []}, "array into Go struct field Pod.spec of type v1.PodSpec"),
        (POD, {"spec": {"hostNetwork": "yes"}}, "string into Go struct field PodSpec.spec.hostNetwork of type bool"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_as_go_names_it(type_name: str, value: Any, field: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(value, type_name)
    assert str(refused.value) == f"json: cannot unmarshal {field}"


def test_unknown_fields_are_dropped_and_reported_with_their_place() -> None:
    decoded = decode({"spec": {"bogus": 1, "containers": [{"name": "c", "imge": "x"}]}}, POD)
    assert decoded.value == {"spec": {"containers": [{"name": "c"}]}}
    assert decoded.unknown == ["spec.bogus", "spec.containers[0].imge"]


def test_nulls_are_as_good_as_absent() -> None:
    assert decode({"spec": {"nodeName": None, "containers": [{"name": "c"}]}}, POD).value == {
        "spec": {"containers": [{"name": "c"}]}
    }


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(BadQuantity, match="quantities must match the regular expression"):
        decode({"spec": {"containers": [{"resources": {"limits": {"cpu": "abc"}}}]}}, POD)


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("2", 2), ("64Mi", 64 * 2**20), ("1e3", 1000), ("1.5Gi", 1.5 * 2**30), (4, 4)]
)
def test_quantities_are_exact(text: str | int, value: float) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "1 Gi", "1Zi", "Mi", "1..2", "--1"])
def test_malformed_quantities_are_refused(text: str) -> None:
    with pytest.raises(BadQuantity):
        parse_quantity(text)


def test_sums_are_written_as_whole_numbers_or_thousandths() -> None:
    assert format_quantity(parse_quantity("500m") * 2) == "1"
    assert format_quantity(parse_quantity("250m")) == "250m"
