"""The commands in the order of `--help`: in groups, with examples."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Begin": {
        "init": ("trainflow init --from train.py",),
        "validate": ("trainflow validate spec.yaml",),
        "plan": ("trainflow plan spec.yaml --local", "trainflow plan spec.yaml --place prod --objects"),
        "run": ("trainflow run spec.yaml --local", "trainflow run spec.yaml --place prod --detach"),
        "grid": ("trainflow grid spec.yaml --over workload.arguments.lr=1e-4,3e-4 --local",),
    },
    "Follow": {
        "list": ("trainflow list --local", "trainflow list --place prod --json"),
        "status": ("trainflow status latest --local",),
        "top": ("trainflow top --place prod",),
        "watch": ("trainflow watch latest --local",),
        "logs": ("trainflow logs latest --local --follow", "trainflow logs RUN --rank 1 --since 10m"),
        "ui": ("trainflow ui", "trainflow ui --place prod --port 8080"),
        "doctor": ("trainflow doctor --run RUN --place prod", "trainflow doctor --place prod"),
        "exec": ("trainflow exec RUN --rank 0 -- neuron-top",),
    },
    "Stop and continue": {
        "stop": ("trainflow stop latest --local",),
        "resume": (
            "trainflow resume latest --local",
            "trainflow resume RUN --set workload.arguments.max_steps=2000 --place prod",
        ),
        "sweep": ("trainflow sweep --dry-run --place prod",),
    },
    "Results": {
        "report": ("trainflow report latest --local --open",),
        "metrics": ("trainflow metrics latest --local --export csv",),
        "compare": ("trainflow compare RUN OTHER --local",),
        "artifacts": ("trainflow artifacts latest --local --pull results",),
        "messages": ("trainflow messages latest --local",),
        "tensorboard": ("trainflow tensorboard latest --local",),
        "export": ("trainflow export RUN --place prod",),
        "costs": (
            "trainflow costs --by team --month 2026-11 --place prod",
            "trainflow costs --by month --local --json",
        ),
    },
    "Places and formats": {
        "places": ("trainflow places",),
        "check-account": ("trainflow check-account CONFIG",),
        "schema": ("trainflow schema --of command-output",),
    },
    "Steps of `make deploy` and `make destroy`": {
        "images": (),
        "check-idle": (),
        "delete-old-versions": (),
        "rest": (),
    },
}
"""Groups of commands; each command with command lines that a person may change and type. RUN is a run's id."""


def epilog(name: str) -> str | None:
    """The examples of a command as the end of its help; None without any."""
    lines = next((commands[name] for commands in EXAMPLES.values() if name in commands), ())
    # \b keeps the lines of a paragraph apart.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)]) if lines else None
