"""Fits a two-layer network with NumPy alone and prints a JSON object for each logged step."""

import argparse
import json
import time
from pathlib import Path

import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workdir")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--load", help="file of weights to go on from")
    args = parser.parse_args()

    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (1024, 8))
    y = np.sin(3 * x[:, :1]) * x[:, 1:2]
    weights = {
        "w1": random.normal(0, 0.5, (8, args.hidden)),
        "b1": np.zeros(args.hidden),
        "w2": random.normal(0, 0.1, (args.hidden, 1)),
    }
    first = 0
    if args.load:
        with np.load(args.load) as saved:
            weights = {name: saved[name] for name in weights}
            first = int(saved["step"])

    begin = time.perf_counter()
    for step in range(first + 1, args.iterations + 1):
        hidden = np.tanh(x @ weights["w1"] + weights["b1"])
        error = hidden @ weights["w2"] - y
        back = error @ weights["w2"].T * (1 - hidden**2)
        gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ error}
        for name in weights:
            weights[name] -= args.lr * gradients[name] / len(x)
        if step % 10 == 0:
            loss = float((error**2).mean())
            seconds = time.perf_counter() - begin
            print(json.dumps({"step": step, "loss": round(loss, 6), "elapsed": round(seconds, 3)}), flush=True)
        if step % 100 == 0:
            partial = Path(args.workdir, "partial.npz")
            np.savez(partial, step=step, **weights)
            partial.replace(partial.with_name(f"weights-{step}.npz"))


if __name__ == "__main__":
    main()
