"""A package index of tiny wheels, as a folder for `--find-links`, and projects that build without any other package."""

from __future__ import annotations

from pathlib import Path

from tests.wheels import wheel

BACKEND = """
import base64, hashlib, zipfile
from pathlib import Path

NAME, SOURCE = {name!r}, {source!r}

def _wheel(folder, filled):
    info = f"{{NAME}}-1.0.dist-info"
    texts = {{
        f"{{info}}/METADATA": f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n" + {requires!r},
        f"{{info}}/WHEEL": "Wheel-Version: 1.0\\nGenerator: a\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    for path in sorted(Path(SOURCE).rglob("*.py")) if filled else ():
        if path.name != "backend.py":
            texts[path.relative_to(SOURCE).as_posix()] = path.read_text()
    name = f"{{NAME}}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as packed:
        for file, text in texts.items():
            packed.writestr(zipfile.ZipInfo(file), text)
        packed.writestr(zipfile.ZipInfo(f"{{info}}/RECORD"), "".join(f"{{file}},,\\n" for file in texts))
    return name

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, True)

def build_editable(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, False)
"""


def index(folder: Path, *packages: tuple[str, str, str | None]) -> Path:
    """Write wheels.

    Args:
        folder: Folder to make.
        packages: Name, version and requirement of each package.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, version, requires in packages:
        wheel(folder, name, version, content=f"version = '{version}'\n", requires=requires)
    return folder


def project(folder: Path, name: str, *, source: str = "src", requires: str = "") -> Path:
    """Write a project whose build needs no other package.

    Args:
        folder: Folder of its pyproject.toml.
        name: Name of the package and of its module.
        source: Folder of the module below the project's.
        requires: Lines of its metadata.
    """
    package = folder / source / name
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("built = True\n")
    (folder / "build_tools").mkdir()
    (folder / "build_tools/backend.py").write_text(BACKEND.format(name=name, source=source, requires=requires))
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["build_tools"]\n'
    )
    return folder
