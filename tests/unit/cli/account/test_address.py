"""The public address of the machine, as AWS's page tells it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import urllib3

from trainflow.cli.account.address import PAGE, own_address
from trainflow.cli.account.facts import Unknown


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::1"])
def test_the_address_is_what_the_page_says(address: str) -> None:
    asked = []

    def get(url: str, _headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(url)
        return 200, {}, f"{address}\n".encode()

    assert own_address(get) == address
    assert asked == [PAGE]


def test_a_page_without_an_address_is_reported_as_unknown() -> None:
    found = own_address(lambda _url, _headers: (302, {}, b"<html>Please log in to the hotel's network</html>"))
    assert found == Unknown(f"{PAGE} answered 302 and no address")


def test_without_an_answer_the_address_is_unknown() -> None:
    def get(url: str, _headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        raise urllib3.exceptions.ConnectTimeoutError(url)

    assert own_address(get) == Unknown(f"{PAGE} did not answer (ConnectTimeoutError)")
