"""Programs import what they use: transformers takes longer than all the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest


def imported(statement: str) -> set[str]:
    """Packages that are there after a statement in a process of its own."""
    program = f"{statement}; import sys; print(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.lengthy
def test_pretraining_does_without_transformers() -> None:
    modules = imported("import trainer.loop.training, trainer.loop.ahead_of_time")
    assert "torch" in modules
    assert not modules & {"transformers", "tokenizers", "requests"}


@pytest.mark.lengthy
def test_training_a_small_example_does_without_transformers() -> None:
    assert "torch" in imported("import trainer.classification.task, trainer.mlp, trainer.classifier")
    assert "transformers" not in imported("import trainer.classification.task, trainer.mlp, trainer.classifier")


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "module",
    [
        "pretrain",
        "mlp",
        "classifier",
        "corpus.command",
        "stage",
        "publish",
        "precompile",
        "supervisor",
        "data.shards",
    ],
)
def test_wrong_arguments_need_not_wait_for_torch(module: str) -> None:
    assert not imported(f"import trainer.{module}") & {"torch", "transformers", "h5py", "boto3", "tokenizers"}
