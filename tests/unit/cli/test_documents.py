"""Pages that messages name are there, wherever the command was typed."""

from __future__ import annotations

import re
from pathlib import Path

from trainflow.cli.documents import page_path


def test_every_page_that_the_command_names_exists() -> None:
    sources = "".join(path.read_text() for path in Path("trainflow").rglob("*.py"))
    named = set(re.findall(r"\bpage_path\(['\"]([^'\"]+)['\"]\)", sources))
    assert named
    for name in named:
        assert Path(page_path(name)).is_absolute() and Path(page_path(name)).is_file()


def test_no_message_names_a_page_by_a_path_that_depends_on_the_folder() -> None:
    for path in Path("trainflow").rglob("*.py"):
        code = re.sub(r'"""(?s:.*?)"""|#[^\n]*', "", path.read_text())
        assert not re.findall(r"docs/[a-z-]+\.md", code), path
