"""Lines of pip's requirements files, with the file and line that each stands in.

The format is pip's (pip documentation, "Requirements File Format"): comments, continued lines, `-r`, `-c`, `-e`.
pip reads the lines once more; here they are read so that errors name a line, and so that local projects are found.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.packages.image import canonical
from trainer.runtime.errors import CodeInvalid

_COMMENT = re.compile(r"(^|\s+)#.*$")
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(?:$|[<>=!~;@(,\s-])")
_URL = re.compile(r"(?:[a-z]+\+)?[a-z][a-z0-9.]*:", re.IGNORECASE)
_ENCODING = re.compile(rb"coding[:=]\s*([-\w.]+)")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_FILES = {"-r": "-r", "--requirement": "-r", "-c": "-c", "--constraint": "-c"}
_EDITABLE = ("-e", "--editable")
_PATHS = ("-f", "--find-links")
MAX_FILES = 100
"""Files that one file may lead to: files that name each other would never end."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A logical line of a requirements file, and where it begins."""

    text: str
    file: str
    """The file as the spec's author knows it."""
    number: int
    constrains: bool = False
    """Whether it only limits versions."""
    is_option: bool = False
    """Whether it is an option for all lines, such as `--index-url`."""
    is_editable: bool = False

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.file} line {self.number}"

    @property
    def is_local(self) -> bool:
        """Whether it names a folder, a file or a URL in place of a version of an index."""
        bare = self.text.split(" ;")[0].split(" --")[0].strip()
        return not self.is_option and (
            self.is_editable
            or bool(_URL.match(bare))
            or bare.startswith((".", "/"))
            or "@" in re.split(r"[<>=!~;]", bare)[0]
            or "/" in re.split(r"[;\[]", bare)[0]
            or bool(re.search(r"\.(whl|zip|tar\.gz|tar\.bz2)$", bare))
        )

    @property
    def name(self) -> str | None:
        """Name of the package; None for a folder or a URL without a name."""
        match = None if _URL.match(self.text) or self.text.startswith((".", "/")) else _NAMED.match(self.text)
        return canonical(match["name"]) if match else None


def read(file: Path, *, root: Path) -> list[Line]:
    """All lines that a requirements file leads to, with paths that are absolute.

    Args:
        file: The file.
        root: Folder that messages name files from.

    Raises:
        CodeInvalid: If a file cannot be read, or an option lacks its value; the message names file and line.
    """
    return list(_lines(file, root=root, constrains=False, opened=[]))


def _lines(file: Path, *, root: Path, constrains: bool, opened: list[Path], place: str = "") -> Iterator[Line]:
    opened.append(file)
    if len(opened) > MAX_FILES:
        raise _invalid(f"{place or file.name} leads to more than {MAX_FILES} files; see that no two name each other.")
    name = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
    for number, text in _logical_lines(_text(file, name, place)):
        line = Line(text=text, file=name, number=number, constrains=constrains)
        option, value = _option(text)
        if option in _FILES:
            nested = _value(line, option, value)
            if _URL.match(nested):
                yield Line(text=f"{option} {nested}", file=name, number=number, is_option=True)
                continue
            yield from _lines(
                file.parent / nested,
                root=root,
                constrains=constrains or _FILES[option] == "-c",
                opened=opened,
                place=line.place,
            )
        else:
            yield _located(line, option, value, file.parent)


def _located(line: Line, option: str, value: str, folder: Path) -> Line:
    """A line with the paths that are relative to its file made absolute."""
    if option in _EDITABLE:
        return replace(line, text=_absolute(_value(line, option, value), folder), is_editable=True)
    if option in _PATHS:
        found = folder / _value(line, option, value)
        return replace(
            line, text=f"--find-links {shlex.quote(str(found)) if found.exists() else value}", is_option=True
        )
    if option:
        return replace(line, is_option=True)
    return replace(line, text=_absolute(line.text, folder)) if line.is_local else line


def _absolute(text: str, folder: Path) -> str:
    """A local path with its extras and marker, relative to no folder; other texts are left as they are."""
    match = re.match(r"(?P<path>[^\s;\[#]+)(?P<rest>.*)", text, re.DOTALL)
    if match is None or _URL.match(text) or re.match(r"[\w.-]+\s*(\[[^\]]*\])?\s*@", text):
        return text
    return f"{(folder / match['path']).resolve()}{match['rest']}"


def _option(text: str) -> tuple[str, str]:
    """Option of a line and its value; an empty option for a requirement."""
    if not text.startswith("-"):
        return "", ""
    match = re.match(r"(?P<option>--[\w-]+|-\w)(?:\s*=\s*|\s*)(?P<value>.*)", text, re.DOTALL)
    return (match["option"], match["value"].strip()) if match else (text, "")


def _value(line: Line, option: str, value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise _invalid(f"{line.place}: {line.text!r} cannot be read ({error}); correct its quotes.") from error
    if not words or "\0" in value:
        raise _invalid(f"{line.place}: {option} needs the name of a file or folder behind it.")
    return words[0]


def _text(file: Path, name: str, place: str) -> str:
    """A file's text: by its byte order mark, by its coding line, or as UTF-8, as pip reads it."""
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:
        asked = f"{place} names {name}, which" if place else str(file)
        raise _invalid(f"{asked} cannot be read ({error}); correct the path, and see that it is packed.") from error
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _decoded(content[len(mark) :], encoding, name)
    cookies = (_ENCODING.search(line) for line in content.splitlines()[:2] if line.startswith(b"#"))
    cookie = next((match[1].decode("ascii", "replace") for match in cookies if match), "utf-8")
    return _decoded(content, cookie, name)


def _decoded(content: bytes, encoding: str, name: str) -> str:
    try:
        text = content.decode(encoding)
    except (UnicodeError, LookupError) as error:
        raise _invalid(f"{name} is not text in {encoding} ({error}); store it as UTF-8.") from error
    if "\0" in text:
        raise _invalid(f"{name} holds NUL characters, as UTF-16 without a byte order mark does; store it as UTF-8.")
    return text


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; those that end in a backslash are joined with the next."""
    begun, parts = 0, list[str]()
    for number, physical in enumerate(text.splitlines(), start=1):
        begun = begun if parts else number
        is_comment = physical.lstrip().startswith("#")
        continued = physical.endswith("\\") and not is_comment
        parts.append(physical[:-1] if continued else physical)
        if not continued:
            yield from _uncommented(begun, parts)
            parts = []
    yield from _uncommented(begun, parts)


def _uncommented(number: int, parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    text = _COMMENT.sub("", "".join(parts)).strip()
    if text:
        yield number, text


def _invalid(sentence: str) -> CodeInvalid:
    return CodeInvalid(f"workload.requirements: {sentence}")
