"""A workload with a compiler of its own: it compiles a number of graphs into the cache that it is told to use."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--graphs", type=int, default=3)
parser.add_argument("--compile_seconds", type=float, default=0.0)
parser.add_argument("--compile_until", type=Path, help="a file that ends the compilation by being there")
parser.add_argument("--failing_attempts", type=int, default=0)
parser.add_argument("--max_steps", type=int, default=3)
parser.add_argument("--steps_this_run", type=int, default=-1)
parser.add_argument("--learning_rate", type=float, default=0.1)
arguments = parser.parse_args()
if os.environ["RANK"] != "0":
    sys.exit()

cache = Path(os.environ["TRAINFLOW_CACHE_DIR"]) / "graphs"
cache.mkdir(parents=True, exist_ok=True)
names = [f"MODULE_{number}+abb26765" for number in range(arguments.graphs)]
cached = [name for name in names if (cache / name).exists()]
print(f"cache {cache} holds {len(cached)} of {len(names)} graphs", flush=True)

if os.environ.get("TRAINFLOW_PRECOMPILE") == "1":
    time.sleep(arguments.compile_seconds)
    while arguments.compile_until and not arguments.compile_until.exists():
        time.sleep(0.1)
    failed = names[:1] if int(os.environ["TRAINFLOW_ATTEMPT"]) <= arguments.failing_attempts else []
    for name in failed:
        print(f"Compilation failed for /tmp/workdir/model.{name}.hlo.pb after 0 retries.")
    for name in names:
        if name not in failed:
            (cache / name).write_text(os.environ["TRAINFLOW_RUN_ID"])
    succeeded = len(names) - len(failed)
    totals = {"graphs": len(names), "successful compilations": succeeded, "failed compilations": len(failed)}
    for what, count in {**totals, "cached graphs": len(cached)}.items():
        print(f"INFO ||PARALLEL_COMPILE||: Total {what}: {count}", flush=True)
    sys.exit()

(cache / f"written-by-{os.environ['TRAINFLOW_RUN_ID']}").touch()
for step in range(1, arguments.max_steps + 1):
    time.sleep(0.1)
    now = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime())
    print(
        f"LOG {now} - (0, {step}) step_loss : {9 - step / 100:.4f} learning_rate : 1.00e-04 throughput : 64.00",
        flush=True,
    )
