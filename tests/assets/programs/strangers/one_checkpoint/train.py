"""Replaces one checkpoint after each epoch, in the working folder; continues from the file that a flag names."""

import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("data", nargs="?", default="images", help="folder of the data set")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="path to latest checkpoint")


class Meter:
    def __init__(self, name):
        self.name, self.total, self.count = name, 0.0, 0

    def update(self, value):
        self.total, self.count, self.value = self.total + value, self.count + 1, value

    def __str__(self):
        return f"{self.name} {self.value:.4e} ({self.total / self.count:.4e})"


def main():
    args = parser.parse_args()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    start = 0
    if args.resume and os.path.isfile(args.resume):
        checkpoint = torch.load(args.resume)
        start = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        print(f"=> loaded checkpoint '{args.resume}' (epoch {start})")
    for epoch in range(start, args.epochs):
        losses = Meter("Loss")
        for batch in range(10):
            inputs = torch.randn(32, 8)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(loss.item())
            time.sleep(0.2)
            print("\t".join([f"Epoch: [{epoch}][{batch + 1:2d}/10]", "Time  0.200 ( 0.200)", str(losses)]), flush=True)
        torch.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, "checkpoint.pth.tar")


if __name__ == "__main__":
    main()
