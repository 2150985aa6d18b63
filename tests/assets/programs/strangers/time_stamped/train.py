"""Writes into a folder named after the time, below the output folder; prints by a logger."""

import argparse
import logging
import os
import sys
import time

import torch

_logger = logging.getLogger("train")
parser = argparse.ArgumentParser(description="Image training")
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--output", default="", type=str, metavar="PATH", help="path to output folder (default: none)")
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="resume full model from checkpoint")


def main():
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    args = parser.parse_args()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    start = 0
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["state_dict"])
        start = checkpoint["epoch"] + 1
        _logger.info(f"Loaded checkpoint '{args.resume}' (epoch {checkpoint['epoch']})")
    output_dir = os.path.join(args.output if args.output else "./output/train", time.strftime("%Y%m%d-%H%M%S"))
    os.makedirs(output_dir, exist_ok=True)
    for epoch in range(start, args.epochs):
        for update_idx in range(10):
            inputs = torch.randn(32, 8)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.2)
            _logger.info(
                f"Train: {epoch} [{update_idx:>4d}/10 ({100.0 * update_idx / 9:>3.0f}%)]  "
                f"Loss: {loss.item():#.3g} ({loss.item():#.3g})  Time: 0.200s,  160.00/s  LR: 5.000e-02"
            )
        state = {"epoch": epoch, "state_dict": model.state_dict()}
        torch.save(state, os.path.join(output_dir, f"checkpoint-{epoch}.pth.tar"))


if __name__ == "__main__":
    main()
