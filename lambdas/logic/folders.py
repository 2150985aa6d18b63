"""Folders of a run inside its pods, and the placeholders of a spec that stand for them."""

from __future__ import annotations

from collections.abc import Sequence

from trainflow.protocol import placeholders
from trainflow.protocol.placeholders import filled_by_workflow
from trainflow.protocol.pods import CACHE_MOUNT, DATA_MOUNT, RUNS_MOUNT
from trainflow.workflow.compile_cache import CacheUse, own_files, own_folder
from trainflow.workflow.run import Run


def run_folder(run_id: str) -> str:
    """Folder of a run's checkpoints and event files inside its pods."""
    return f"{RUNS_MOUNT}/{run_id}"


def data_folder(run: Run) -> str | None:
    """Folder of a run's data set inside its pods; None for a run without one."""
    if run.spec.dataset is None:
        return None
    return run.linked_folder or f"{DATA_MOUNT}/{run.spec.dataset.folder}"


def own_cache(run_id: str) -> str:
    """Folder inside a run's pods for files of its own that may be lost: packages, and what its program keeps."""
    return f"{CACHE_MOUNT}/{own_files(run_id)}"


def own_packages(run_id: str) -> str:
    """Folder inside a run's pods for its own packages, and for its note of the shared ones."""
    return f"{own_cache(run_id)}/packages"


def cache_folder(run_id: str, cache: CacheUse | None) -> str:
    """Folder of a run's compiled graphs inside its pods."""
    return f"{CACHE_MOUNT}/{cache.folder if cache else own_folder(run_id)}"


def filled(run: Run, words: Sequence[str]) -> tuple[str, ...]:
    """Words of the spec with their placeholders filled in; `{rank}` is left to launchers that fill it in."""
    values, by_launcher = _values(run), run.spec.workload.launcher != "torchrun"
    return tuple(filled_by_workflow(word, values, by_launcher=by_launcher) for word in words)


def _values(run: Run) -> dict[str, str]:
    return {
        placeholders.DATA_DIR: data_folder(run) or "",
        placeholders.RUN_DIR: run_folder(run.run_id),
        placeholders.CACHE_DIR: own_cache(run.run_id),
        placeholders.RUN_ID: run.run_id,
    }
