"""Trains a number over gloo; one rank meets a bad batch, and the others lose it."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist


def check(rank: int, step: int, bad_rank: int) -> None:
    if rank == bad_rank and step == 3:
        raise ValueError(f"batch {step} of rank {rank} has a label of -1")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bad_rank", type=int, required=True)
    bad_rank, rank = parser.parse_args().bad_rank, int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for step in range(1, 6):
        check(rank, step, bad_rank)
        loss = torch.tensor([1.0 / step])
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


main()
