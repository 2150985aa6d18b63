"""Prints epochs of batches, and writes its model beside itself at its end; it cannot resume."""

import argparse
import time

import torch


def main():
    parser = argparse.ArgumentParser(description="Digits")
    parser.add_argument("--epochs", type=int, default=14, metavar="N", help="number of epochs to train (default: 14)")
    parser.add_argument("--save-model", action="store_true", help="For Saving the current Model")
    args = parser.parse_args()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(1, args.epochs + 1):
        for batch_idx in range(20):
            data = torch.randn(64, 8)
            loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.2)
            if batch_idx % 2 == 0:
                done = f"{batch_idx * len(data)}/{20 * len(data)} ({100.0 * batch_idx / 20:.0f}%)"
                print(f"Train Epoch: {epoch} [{done}]\tLoss: {loss.item():.6f}", flush=True)
        print(f"\nTest set: Average loss: {loss.item():.4f}, Accuracy: 9000/10000 (90%)\n")
    if args.save_model:
        torch.save(model.state_dict(), "digits.pt")


if __name__ == "__main__":
    main()
