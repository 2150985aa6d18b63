"""The programs with the packages of their images, installed as the recipes install them, without Docker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BASE = Path("requirements/tools/neuron-base.txt")
OF_HUGGING_FACE = ("transformers", "tokenizers", "huggingface-hub")
"""Those that move together."""

TESTS = ("test_learning.py", "test_exchange.py", "test_report.py", "test_checkpoint.py", "test_corpus.py")
"""Tests of `tests/unit/trainer` in which a model or a tokenizer is made."""


UV = Path(sys.executable).with_name("uv")


@pytest.mark.slow
def test_staging_and_publishing_find_all_that_they_import_in_the_tools_image(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    subprocess.run([UV, "venv", "--quiet", "--no-config", "--python", sys.executable, tmp_path], check=True)
    install = [UV, "pip", "install", "--quiet", "--no-config", "--only-binary", ":all:", "--python", python]
    subprocess.run([*install, "--requirement", "trainer/images/tools.txt"], check=True)
    smoke = [python, "-m", "trainer.images.smoke"]
    tools = subprocess.run([*smoke, "tools"], capture_output=True, text=True, check=False)
    training = subprocess.run([*smoke, "training"], capture_output=True, text=True, check=False)
    assert (tools.returncode, tools.stderr) == (0, "")
    assert training.returncode == 1 and "The module torch cannot be imported" in training.stderr


@pytest.mark.slow
def test_the_trainer_works_with_the_transformers_of_neurons_image(tmp_path: Path) -> None:
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", BASE.read_text(), re.MULTILINE))
    packages = [f"{name}=={pins[name]}" for name in OF_HUGGING_FACE]
    install = [UV, "pip", "install", "--quiet", "--no-config", "--no-deps"]
    subprocess.run([*install, "--python", sys.executable, "--target", tmp_path, *packages], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    version = [sys.executable, "-c", "import transformers; print(transformers.__version__)"]
    found = subprocess.run(version, env=environment, capture_output=True, text=True, check=True).stdout
    tests = [f"tests/unit/trainer/{name}" for name in TESTS]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(pytest_, env=environment, capture_output=True, text=True, check=False)

    assert found.strip() == pins["transformers"]
    assert done.returncode == 0, done.stdout[-3000:]
