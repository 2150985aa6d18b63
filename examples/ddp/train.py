"""Classifies points of two interleaved spirals with DistributedDataParallel.

torchrun --nproc_per_node 2 train.py --steps 400
"""

import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--output_dir", default=".")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=100)
    parser.add_argument("--resume", help="checkpoint to go on from")
    return parser.parse_args()


def spirals(count, generator):
    """Points in the plane and the spiral (0 or 1) that each is on."""
    label = torch.randint(0, 2, (count,), generator=generator)
    turn = torch.rand(count, generator=generator) * 2 * math.pi + 0.3
    angle = turn + math.pi * label
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1)
    return points + 0.1 * torch.randn(count, 2, generator=generator), label


def save(path, model, optimizer, step):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)


def main():
    args = parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)

    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    first = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device)
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first = checkpoint["step"]
        if rank == 0:
            print(f"resumed from {args.resume} at step {first}", flush=True)

    for step in range(first + 1, args.steps + 1):
        generator = torch.Generator().manual_seed(step * 1000 + rank)
        points, labels = (each.to(device) for each in spirals(args.batch_size, generator))
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % args.log_every == 0:
            print(f"step={step} train_loss={loss.item():.4f} lr={args.lr:g}", flush=True)
        if rank == 0 and step % args.save_every == 0:
            save(Path(args.output_dir, "ckpt", f"step_{step}.pt"), model, optimizer, step)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
