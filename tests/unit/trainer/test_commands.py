"""Commands that helpers start."""

from __future__ import annotations

import os
import signal
import subprocess

from trainer.runtime.commands import SignalForwarding, exit_code


def test_a_signal_that_comes_before_the_children_are_started_reaches_all_of_them() -> None:
    signals = SignalForwarding()
    os.kill(os.getpid(), signal.SIGTERM)
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    assert [child.poll() for child in children] == [None, None]
    signals.forward_to(*children)
    assert [exit_code(child) for child in children] == [128 + signal.SIGTERM] * 2


def test_a_signal_that_comes_later_is_passed_on_as_it_is() -> None:
    signals, child = SignalForwarding(), subprocess.Popen(["sleep", "60"])
    signals.forward_to(child)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert exit_code(child) == 128 + signal.SIGUSR1


def test_signals_act_on_this_process_as_before_once_they_are_not_passed_on() -> None:
    received: list[int] = []
    signal.signal(signal.SIGUSR2, lambda signum, _frame: received.append(signum))
    SignalForwarding().stop()
    os.kill(os.getpid(), signal.SIGUSR2)
    assert received == [signal.SIGUSR2]
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
