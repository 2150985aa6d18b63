"""Calls that tracebacks name: their files and lines, and whether they are the program's own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PYTHON = re.compile(r'^\s*(?:> )?File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,9})')
_IPYTHON = re.compile(r"^File (?P<path>[~/]\S{1,400}):(?P<line>\d{1,9}), in ")
_RICH = re.compile(r"^\s*│\s(?P<path>\S{1,400}):(?P<line>\d{1,9}) in \S")
_RUST = re.compile(
    r"^thread '.{0,200}' (?:\(\d{1,9}\) )?panicked at (?:'.{0,800}', )?(?P<path>[^\s:]{1,400}):(?P<line>\d{1,9})"
)
_JAVA = re.compile(r"^\s+at (?P<function>[\w.$/<>]{1,300})\((?P<path>\w{1,200}\.(?:java|scala|kt)):(?P<line>\d{1,9})\)")
_GO = re.compile(r"^\s+(?P<path>/\S{1,400}\.go):(?P<line>\d{1,9})(?: |$)")
_NATIVE = re.compile(
    r"^\s*(?:frame #\d{1,4}: |#\d{1,4}\s+(?:0x[0-9a-f]|Object |Source )|\[\S{1,200}:\d{1,9}\] \[ ?\d{1,4}\] "
    r"|={0,4}\s{0,4}\d{1,4}:?\s+0x[0-9a-f]{4}|\S{1,400}\([^()]{0,400}\+0x[0-9a-f]{1,16}\) ?\[0x[0-9a-f])"
)
"""A call of a C++ stack, as of PyTorch, glibc, Open MPI and UCX."""

_PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](?P<name>[\w.-]{1,80})")
_LIBRARY = re.compile(
    r"[/\\](?:lib|lib64|Lib|bin|Frameworks)[/\\](?:.{0,200}[/\\])?python[\d.]{1,5}[/\\]|[/\\]bin[/\\](?P<name>[\w-]{1,40})$"
    r"|^<|[/\\]rustc[/\\]|[/\\]\.cargo[/\\]|[/\\](?:usr|opt)[/\\](?:local[/\\])?go[/\\]"
)
_LIBRARY_FUNCTION = re.compile(r"^(?:java|javax|jdk|sun|scala|kotlin|org\.apache|io\.netty|akka)[./]")


@dataclass(frozen=True)
class Frame:
    """A call in a traceback."""

    path: str
    line: int
    library: str = ""
    """Name of the library that the file belongs to; empty for the program's own files."""

    @property
    def place(self) -> str:
        """File and line without the folders, apart from that of a package's `__init__.py`."""
        folders, _, name = self.path.replace("\\", "/").rpartition("/")
        if name in ("__init__.py", "__main__.py") and folders:
            name = f"{folders.rpartition('/')[2]}/{name}"
        return f"{name}:{self.line}"


def frame(text: str) -> Frame | None:
    """The call that a line names; None for other lines, and for calls without file and line."""
    for expression in (_PYTHON, _IPYTHON, _RICH, _RUST, _JAVA, _GO):
        if found := expression.match(text):
            function = found.groupdict().get("function") or ""
            return Frame(found["path"], int(found["line"]), _library(found["path"], function))
    return None


def is_native_frame(text: str) -> bool:
    """Whether a line is a call of a C++ stack."""
    return _NATIVE.match(text) is not None


def innermost(frames: Iterable[Frame], *, last_call_first: bool = False) -> Frame | None:
    """The innermost call of the program's own; None without one."""
    own = [each for each in frames if not each.library]
    return None if not own else own[0 if last_call_first else -1]


def _library(path: str, function: str) -> str:
    if function:
        return function.split(".")[0] if _LIBRARY_FUNCTION.match(function) else ""
    found = _PACKAGE.search(path) or _LIBRARY.search(path)
    return (found["name"] or "Python").removesuffix(".py") if found is not None else ""
