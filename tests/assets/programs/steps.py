"""A workload of one's own: logs steps in the tutorials' form, as often and as fast as it is told."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--max_steps", type=int, default=5)
parser.add_argument("--seconds_per_step", type=float, default=0.2)
parser.add_argument("--exit_code", type=int, default=0)
parser.add_argument("--exits_at", type=int, default=0)
parser.add_argument("--hangs_at", type=int, default=0)
parser.add_argument("--last_words", default="the flux capacitor is missing")
parser.add_argument("--dies_by_signal_at", type=int, default=0)
parser.add_argument("--diverges_at", type=int, default=0)
arguments = parser.parse_args()


def end_at(step: int) -> None:
    """Exit or hang after the step, if it is told to."""
    if step in (arguments.exits_at, arguments.hangs_at) and os.environ["RANK"] == "0":
        print(arguments.last_words, file=sys.stderr, flush=True)
        if step == arguments.exits_at:
            sys.exit(arguments.exit_code or 1)
        time.sleep(3600)


if arguments.exit_code and not arguments.exits_at:
    print(arguments.last_words, file=sys.stderr)
    sys.exit(arguments.exit_code)

for step in range(1, arguments.max_steps + 1):
    time.sleep(arguments.seconds_per_step)
    if step == arguments.dies_by_signal_at and os.environ["RANK"] == "0":  # alone: another rank's end could come first
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["RANK"] == "0":
        loss = float("nan") if 0 < arguments.diverges_at <= step else 9 - step / 100
        now = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime())
        print(
            f"LOG {now} - (0, {step}) step_loss : {loss:.4f} learning_rate : 1.00e-04 throughput : 64.00",
            flush=True,
        )
    end_at(step)
