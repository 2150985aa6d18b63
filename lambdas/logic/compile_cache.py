"""Key of the compile cache that holds a run's graphs, and the limit of waiting for another run's compilation.

It cannot be seen from outside which arguments of a program change its graphs. So every argument is part of the key,
except for those that are known never to matter; a spec adds names of its own with `precompile.ignore_arguments`. A
superfluous argument in the key costs one compilation; a missing one would cost the gang's time whenever a graph is
missing.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from typing import Any

from lambdas.logic.jobs import NEURON_ENVIRONMENT
from trainflow.nodes.instances import InstanceType
from trainflow.protocol.compile_cache import NEVER_SHAPE_GRAPHS
from trainflow.spec.run_spec import RunSpec
from trainflow.spec.workload import as_text
from trainflow.workflow.event_bound import LONGEST_CACHE_WAIT

VERSION = 1
"""Version of the key. Raise it when the key gets a new component."""

HASH_LENGTH = 12
"""Hex digits, as in a run id."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")


# Decision 15: one writer for each key, and readers copy.
def cache_key(spec: RunSpec, *, image_digest: str | None) -> str:
    """The key of a run's cache. It begins with a readable name: `<cacheset or spec's name>-<12 hex digits>`.

    Args:
        spec: Spec of the run.
        image_digest: Digest of the image that its pods run; None if it is unknown: then the image's name is used.
    """
    content = json.dumps(_what_shapes_graphs(spec, image_digest), sort_keys=True)
    return f"{spec.cacheset}-{hashlib.sha256(content.encode()).hexdigest()[:HASH_LENGTH]}"


def _what_shapes_graphs(spec: RunSpec, image_digest: str | None) -> dict[str, Any]:
    workload, compute = spec.workload, spec.compute
    ignored = NEVER_SHAPE_GRAPHS | frozenset(spec.precompile.ignore_arguments)
    counted = {
        name: [as_text(word) for word in value] if isinstance(value, list) else as_text(value)
        for name, value in workload.arguments.items()
        if name not in ignored
    }
    return {
        "version": VERSION,
        "image": _digest(image_digest or workload.image or ""),
        "python": workload.python_environment,
        "program": [workload.module, workload.script, *(workload.command or ()), *map(as_text, workload.positional)],
        **({"code": workload.code} if workload.code else {}),
        "arguments": counted,
        "shapes": None if spec.dataset is None or spec.precompile.ignore_dataset else spec.dataset.url,
        "precompiled_steps": spec.precompile.steps,
        "chip": _chip(compute.instance),
        "environment": {**(NEURON_ENVIRONMENT if compute.instance.uses_neuron else {}), **workload.env},
        "world": [compute.num_nodes, compute.processes_per_node],
        "elastic": compute.elastic.model_dump(include={"min_nodes", "max_nodes"}) if compute.elastic else None,
    }


def is_pinned(image: str) -> bool:
    """Whether an image's name ends with its digest."""
    return _DIGEST.search(image) is not None


def _digest(image: str) -> str:
    """The digest of an image that is named by one, else its name: the same image may have many names."""
    found = _DIGEST.search(image)
    return found[0] if found else image


def _chip(instance: InstanceType) -> str:
    """Target of the compiler: the generation of the chip, the model of the GPU, or the family of a CPU instance, whose
    instructions differ."""
    family = instance.name.split(".")[0]
    if instance.uses_neuron:
        return family.rstrip("n")
    return instance.device or family


def has_waited_too_long(*, since: datetime, now: datetime) -> bool:
    """Whether a run should stop waiting for another run's compilation and compile for itself."""
    return now - since > LONGEST_CACHE_WAIT
