"""Each module that replaces a part of moto has an entry that states whether the patch could be offered."""

from __future__ import annotations

import re

from tests.infrastructure.generated_pages import offers, replaced_functions


def test_every_module_with_patches_has_an_entry_and_no_other() -> None:
    assert offers().keys() == replaced_functions().keys()


def test_every_entry_says_whether_it_is_offered() -> None:
    for module, offer in offers().items():
        assert re.match(r"(Offered|In part|Not offered): .{20,}", offer), module
