"""Unpacking of wheels into one folder that is on Python's path. No code of a wheel runs.

Formats: "Binary distribution format" (PEP 427) and "Entry points specification" of packaging.python.org.
"""

from __future__ import annotations

import configparser
import re
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from trainer.runtime.errors import CodeInvalid

PYTHON = "#!/usr/bin/env python\n"
"""First line of scripts: one folder serves all images whose Python is of the same version, wherever it is."""

_SCRIPT = """\
import sys
from {module} import {first}
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit({attribute}())
"""
_OBJECT = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<attribute>[\w.]+)(\s*\[.*\])?")
_ENTRY_POINTS = re.compile(r"[^/]+\.dist-info/entry_points\.txt")
_ON_PATH = ("purelib", "platlib", "data")


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel.

    Args:
        wheel: The file.
        folder: Folder for modules and metadata; scripts go to its `bin`.

    Raises:
        CodeInvalid: If the file is not a wheel, or a member would be outside of the folder.
    """
    try:
        with zipfile.ZipFile(wheel) as packed:
            for member in packed.infolist():
                target = None if member.is_dir() else _target(member.filename, folder, wheel)
                if target is not None:
                    _write(packed, member, target)
            for name in packed.namelist():
                if _ENTRY_POINTS.fullmatch(name):
                    _write_scripts(packed.read(name).decode(), folder / "bin")
    except (zipfile.BadZipFile, configparser.Error, UnicodeError, NotImplementedError, RuntimeError) as error:
        raise CodeInvalid(f"workload.requirements: {wheel.name} is not a wheel ({error}).") from error


def _target(name: str, folder: Path, wheel: Path) -> Path | None:
    """Place of a member; None for headers, which nothing imports."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise CodeInvalid(f"workload.requirements: {wheel.name} holds {name!r}, which is outside of its folder.")
    if not parts[0].endswith(".data") or len(parts) < 3:
        return folder.joinpath(*parts)
    if parts[1] == "scripts":
        return folder.joinpath("bin", *parts[2:])
    return folder.joinpath(*parts[2:]) if parts[1] in _ON_PATH else None


def _write(packed: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with packed.open(member) as source, target.open("wb") as written:
        start = source.readline() if target.parent.name == "bin" else b""
        written.write(PYTHON.encode() if start.startswith((b"#!python\n", b"#!python\r\n", b"#!pythonw")) else start)
        shutil.copyfileobj(source, written, 1 << 20)
    executable = target.parent.name == "bin" or bool(member.external_attr >> 16 & stat.S_IXUSR)
    target.chmod(0o755 if executable else 0o644)


def _write_scripts(text: str, folder: Path) -> None:
    for name, content in _scripts(text):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
        (folder / name).chmod(0o755)


def _scripts(text: str) -> Iterator[tuple[str, str]]:
    """Console scripts of a wheel: name and text of each."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    for group in ("console_scripts", "gui_scripts"):
        for name, value in parser.items(group) if parser.has_section(group) else ():
            match = _OBJECT.fullmatch(value.strip())
            if match and re.fullmatch(r"[\w.-]+", name) and name not in (".", ".."):
                module, attribute = match["module"], match["attribute"]
                yield name, PYTHON + _SCRIPT.format(module=module, first=attribute.split(".")[0], attribute=attribute)
