from __future__ import annotations

import pytest
from kubetwin.model.selectors import BadSelector, label_selector_of, parse_field_selector, parse_label_selector

LABELS = {"app": "train", "tier": "gpu", "n": "3"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=train", True),
        ("app==train,tier=gpu", True),
        ("app!=train", False),
        ("missing!=anything", True),
        ("tier in (cpu, gpu)", True),
        ("tier notin (cpu,gpu)", False),
        ("missing notin (cpu)", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("n>2,n<4", True),
        ("n>3", False),
        ("app>1", False),
        ("app=", False),
        ("app in (train,)", True),
        ("tier notin ()", True),
    ],
)
def test_a_label_selector_selects_as_kubernetes_does(selector: str, matches: bool) -> None:
    assert parse_label_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        ("grp in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("a foo b", "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c=d", "found 'c', expected: ',' or 'end of string'"),
    ],
)
def test_a_bad_label_selector_is_refused_in_the_servers_words(selector: str, complaint: str) -> None:
    with pytest.raises(BadSelector) as refused:
        parse_label_selector(selector)
    assert str(refused.value) == complaint


def test_the_selector_of_an_object_needs_all_its_labels_and_expressions() -> None:
    selector = label_selector_of(
        {"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["gpu"]}]}
    )
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "train", "tier": "cpu"})


def test_a_field_selector_compares_single_fields_and_takes_absent_as_empty() -> None:
    known = ("metadata.name", "metadata.namespace", "spec.nodeName")
    unscheduled = parse_field_selector("spec.nodeName=,metadata.name!=other", known)
    assert unscheduled.matches({"metadata": {"name": "p"}, "spec": {}})
    assert not unscheduled.matches({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}})
    assert parse_field_selector("metadata.name=p", known).required_value("metadata.name") == "p"


def test_an_unknown_field_is_refused_with_the_fields_that_there_are() -> None:
    with pytest.raises(BadSelector, match=r'"data\.d" is not a known field selector: only "metadata\.name"'):
        parse_field_selector("data.d=a", ("metadata.name", "metadata.namespace"))
