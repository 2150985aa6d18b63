"""Plans whose program is a command, and the command line of a supervisor that executes them."""

from __future__ import annotations

import sys
from typing import Any

from trainer.runtime import environment
from trainer.runtime.node import Node
from trainflow.protocol.plan import Launch, Plan, to_words


def launch_of(*program: str, **fields: Any) -> Launch:
    """A program that is started once on the only node of its gang, unless fields say otherwise."""
    one = {"launcher": "none", "num_nodes": 1, "processes": 1, "port": 20001, "is_python": False}
    return Launch(**{**one, "program": program, **fields})


def node_of(plan: Plan, *, rank: int = 0, master_addr: str = "first", **environ: str) -> Node:
    """A node with a plan, in an environment of a few variables."""
    return Node(plan=plan, environment=environment.read(environ), rank=rank, master_addr=master_addr)


def supervised(*program: str, node_rank: int = 0, launch: Launch | None = None, **steps: Any) -> list[str]:
    """The command of a supervisor.

    Args:
        program: The program and its words.
        node_rank: Number of the node.
        launch: In place of the program.
        steps: Further steps of the plan.
    """
    return [sys.executable, "-m", *words_of(*program, node_rank=node_rank, launch=launch, **steps)]


def words_of(*program: str, node_rank: int = 0, launch: Launch | None = None, **steps: Any) -> list[str]:
    """The same, without Python: the supervisor and its words."""
    plan = Plan(launch=launch or launch_of(*program), **steps)
    return ["trainer.supervisor", "--node_rank", str(node_rank), "--master_addr", "first", "--", *to_words(plan)]
