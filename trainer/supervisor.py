"""Execute a gang's plan on one node: `python -m trainer.supervisor --node_rank N --master_addr HOST -- PLAN`.

The steps before the program run in this process, in the order of the plan (`trainflow.protocol.plan`). Then the program
starts as a child, whose signals and exit code pass through this one process. Where nothing has to run beside the
program, it replaces this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainer.runtime import program, user_cache
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import helper
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid
from trainer.runtime.node import Node, Prepared
from trainer.steps import ended_ranks, processes
from trainer.steps.processes import Process
from trainflow.protocol import plan as plans
from trainflow.protocol.plan import Plan, PlanInvalid


@dataclass(frozen=True, kw_only=True)
class SupervisorConfig:
    """The place of this node; the plan's text follows after `--`, in one word or several."""

    node_rank: int = 0
    """Number of this node in its gang, from 0. Left out in elastic gangs."""
    master_addr: str = "localhost"
    """Host name of node 0."""
    plan_file: Path | None = None
    """File with the plan, in place of the words after `--`."""


def main(argv: Sequence[str], environment: Environment) -> None:
    """Execute the plan.

    Raises:
        ConfigInvalid: If the text is not a plan, or the program cannot be started.
        TrainerError: If a step before the program fails.
    """
    own, words = divided(argv)
    config = parse(SupervisorConfig, own, program="trainer.supervisor")
    plan = read_plan(config, words)
    node = Node(plan=plan, environment=environment, rank=config.node_rank, master_addr=config.master_addr)
    added = prepare(node)
    if plan.fetch is not None:
        from trainer.steps import workspace

        workspace.fetch(plan.fetch.code)
        return
    if plan.probe is not None:
        processes.replace_supervisor(Process(words=(sys.executable, *helper("probe"), *plan.probe.words)))
    sys.exit(run(node, added))


def read_plan(config: SupervisorConfig, words: Sequence[str]) -> Plan:
    """The plan of the command line.

    Raises:
        ConfigInvalid: If the text cannot be read, or is not a plan.
    """
    try:
        return plans.parse_plan(config.plan_file.read_text(encoding="utf-8") if config.plan_file else "".join(words))
    except (OSError, PlanInvalid) as error:
        raise ConfigInvalid(f"The plan cannot be executed: {error}") from error


def prepare(node: Node) -> list[str]:
    """Execute the steps before the program; the words that they add to it."""
    os.environ.update(user_cache.variables(os.environ))
    added: list[str] = []
    for step in node.plan.steps:
        prepared = _prepared(step, node)
        os.environ.update(prepared.variables)
        added += prepared.words
    return added


def _prepared(step: Any, node: Node) -> Prepared:
    """Execute a step if it comes before the program. Modules are imported here: most plans have few steps, and a pod
    compiles the helpers at each start."""
    match step:
        case plans.Secrets():
            from trainer.steps import secrets

            return secrets.prepare(step, node)
        case plans.LockedMemory():
            from trainer.steps import locked_memory

            return locked_memory.prepare(step, node)
        case plans.AbandonedLocks():
            from trainer.steps import abandoned_locks

            return abandoned_locks.prepare(step, node)
        case plans.NodeTest():
            from trainer.steps import node_health

            return node_health.prepare(step, node)
        case plans.CompileCache():
            from trainer.steps import compile_cache

            return compile_cache.prepare(step, node)
        case plans.Resume():
            from trainer.steps import resume

            return resume.prepare(step, node)
        case plans.Code():
            from trainer.steps import workspace

            return workspace.prepare(step, node)
    return Prepared()


def run(node: Node, added: Sequence[str]) -> int:
    """Start the program, with the steps around and beside it; its exit code.

    Args:
        node: The node.
        added: Words behind the program's.
    """
    plan = node.plan
    if not (plan.precompile or plan.progress or plan.report or plan.restart):
        started = _started(node, added, {})
        if len(started) == 1:
            processes.replace_supervisor(started[0])
    if plan.progress is None:
        return _run_and_report(node, added)
    from trainer.steps import progress

    return progress.relayed(plan.progress, node, partial(_run_and_report, node, added))


def _run_and_report(node: Node, added: Sequence[str]) -> int:
    step = node.plan.report
    if step is None:
        return _run(node, added)
    from trainer.steps import error_file
    from trainer.steps.hangs import watch

    def run_watched(given: Mapping[str, str]) -> int:
        return watch.watched(step.quiet_seconds, node, lambda more: _run(node, added, {**given, **more}))

    return error_file.reported(step, node, run_watched)


def _started(node: Node, added: Sequence[str], given: Mapping[str, str]) -> list[Process]:
    """The processes of this node, with further variables."""
    started = [processes.one_process_of(node)] if node.plan.precompile else processes.processes_of(node, added)
    return [each.with_variables(given) for each in started]


def _run(node: Node, added: Sequence[str], given: Mapping[str, str] = MappingProxyType({})) -> int:
    """Run the program with further variables, or its compilation."""
    if node.plan.restart is not None:
        from trainer.steps import restart

        return restart.repeated(node, added, partial(_started, given=given))
    started = _started(node, added, given)
    if node.plan.precompile is None:
        return processes.run(started, ended_ranks.watcher(node))
    from trainer import precompile

    (process,), again = started, node.plan.precompile.retry_failed
    environ = {**os.environ, **process.variables}
    return precompile.compiled(process.words, environ, again=again, is_first_node=node.rank == 0)


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
