"""Replacements of parts of moto hide no other replacement, and are undone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto.core.responses import BaseResponse

from local.aws import patches
from local.aws.access import guard
from local.aws.replacements import ReplacedTooLateError, put_back, replace


class Service:
    def call(self) -> str:
        return "answer"


class Queues(Service):
    pass


class Tables(Service):
    def call(self) -> str:
        return f"table: {super().call()}"


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    yield
    put_back()


def test_a_class_is_not_changed_behind_a_subclass_that_kept_its_former_method() -> None:
    former = Queues.call
    replace(Queues, "call", lambda self: f"checked: {former(self)}")
    with pytest.raises(ReplacedTooLateError, match=r"Queues\.call .*before Service\.call"):
        replace(Service, "call", lambda _self: "refused")
    assert Tables().call() == "table: answer"


def test_a_class_and_then_its_subclass_are_changed() -> None:
    replace(Service, "call", lambda _self: "refused")
    former = Queues.call
    replace(Queues, "call", lambda self: f"checked: {former(self)}")
    assert (Queues().call(), Tables().call()) == ("checked: refused", "table: refused")


def test_a_subclass_with_a_method_of_its_own_hides_nothing() -> None:
    former = Tables.call
    replace(Tables, "call", lambda self: f"checked: {former(self)}")
    replace(Service, "call", lambda _self: "refused")
    assert Tables().call() == "checked: table: refused"


def test_what_was_put_back_hides_nothing_later() -> None:
    replace(Queues, "call", lambda _self: "checked")
    put_back()
    assert (Queues().call(), "call" in vars(Queues)) == ("answer", False)
    replace(Service, "call", lambda _self: "refused")
    assert Queues().call() == "refused"


def test_requests_to_every_service_of_moto_are_judged_before_anything_else_is_done() -> None:
    patches.apply_all()
    guard.install(guard.Guard("us-west-2", owner_key="key", owner_secret="secret"))
    assert BaseResponse.call_action.__module__ == guard.__name__
    own = {each.call_action.__module__ for each in BaseResponse.__subclasses__() if "call_action" in vars(each)}
    assert not [module for module in own if not module.startswith("moto.")], "which would hide the guard's"
