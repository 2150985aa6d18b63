"""A requirements file is read as pip reads it, and every error names the file and the line."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.packages import requirement_lines
from trainer.packages.requirement_lines import Line
from trainer.runtime.errors import CodeInvalid


def lines_of(folder: Path, content: str | bytes, name: str = "requirements.txt") -> list[Line]:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return requirement_lines.read(file, root=folder)


def test_comments_and_continued_lines_are_read_as_one_requirement(tmp_path: Path) -> None:
    text = "# first\n\ntorch>=2 \\\n  ; python_version > '3'  # why\nvis  # also\nurl @ https://a/b.zip#egg=url\n"
    assert [(line.text, line.number) for line in lines_of(tmp_path, text)] == [
        ("torch>=2   ; python_version > '3'", 3),
        ("vis", 5),
        ("url @ https://a/b.zip#egg=url", 6),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"demanded==1.0\r\nother\r\n",
        codecs.BOM_UTF8 + b"demanded==1.0\nother",
        "demanded==1.0\nother".encode("utf-16"),
        codecs.BOM_UTF16_BE + "demanded==1.0\nother".encode("utf-16-be"),
        b"# -*- coding: latin-1 -*-\n# \xe9\ndemanded==1.0\nother\n",
    ],
)
def test_line_ends_and_encodings_of_other_systems_are_read(tmp_path: Path, content: bytes) -> None:
    assert [line.text for line in lines_of(tmp_path, content)] == ["demanded==1.0", "other"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xe9\n", r"requirements.txt is not text in utf-8 .*; store it as UTF-8"),
        ("a\n".encode("utf-16-le"), r"requirements.txt holds NUL characters"),
        (b"a\n-r absent.txt\n", r"requirements.txt line 2 names absent.txt, which cannot be read"),
        (b"a\n\n-c\n", r"requirements.txt line 3: -c needs the name of a file"),
        (b"-e 'src\n", r"requirements.txt line 1: .* cannot be read .*; correct its quotes"),
        (b"-r requirements.txt\n", r"leads to more than 100 files; see that no two name each other"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(CodeInvalid, match=f"^workload.requirements: .*{sentence}"):
        lines_of(tmp_path, content)


def test_nested_files_and_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "deep/wheels").mkdir(parents=True)
    (tmp_path / "deep/more.txt").write_text("./local\n-e ../src[train]\n--find-links wheels\n")
    (tmp_path / "deep/limits.txt").write_text("numpy<3\n")
    found = lines_of(tmp_path, "--requirement=deep/more.txt\n-cdeep/limits.txt\n")
    assert [(line.text, line.place) for line in found] == [
        (f"{tmp_path}/deep/local", "deep/more.txt line 1"),
        (f"{tmp_path}/src[train]", "deep/more.txt line 2"),
        (f"--find-links {tmp_path}/deep/wheels", "deep/more.txt line 3"),
        ("numpy<3", "deep/limits.txt line 1"),
    ]
    assert [(line.is_local, line.is_editable, line.is_option, line.constrains) for line in found] == [
        (True, False, False, False),
        (True, True, False, False),
        (False, False, True, False),
        (False, False, False, True),
    ]


@pytest.mark.parametrize(
    ("text", "name", "is_local"),
    [
        ("Torch_Vision[a,b]>=1", "torch-vision", False),
        ("zope.interface==1 --hash=sha256:00", "zope-interface", False),
        ("a @ https://host/a.whl", "a", True),
        ("git+https://host/a.git@v1#egg=a", None, True),
        ("git+ssh://git@host/a.git", None, True),
        ("https://host/a-1.tar.gz", None, True),
        (".", None, True),
        (".[train]", None, True),
        ("a-1.0-py3-none-any.whl", "a-1.0-py3-none-any.whl", True),
        ("torch ; sys_platform == 'a/b'", "torch", False),
    ],
)
def test_local_projects_and_urls_differ_from_versions_of_an_index(text: str, name: str | None, is_local: bool) -> None:
    line = Line(text=text, file="a", number=1)
    assert line.is_local is is_local
    if not text.endswith(".whl"):
        assert line.name == name


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_whatever_a_file_holds_it_is_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("file")
    try:
        lines_of(folder, content)
    except CodeInvalid as error:
        assert str(error).startswith("workload.requirements: ")


TOKENS = ["-r", "-c", "-e", "--find-links", "\\\n", *"= \n\r#'\"a./@[]\0é-"]
PIECES = st.lists(st.sampled_from(TOKENS), max_size=30).map("".join)


@given(PIECES)
def test_whatever_options_a_file_has_they_are_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, content: str
) -> None:
    folder = tmp_path_factory.mktemp("file")
    try:
        for line in lines_of(folder, content):
            assert line.text
            assert line.place
            _ = (line.name, line.is_local)
    except CodeInvalid as error:
        assert str(error).startswith("workload.requirements: ")
