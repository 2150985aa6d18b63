"""DistributedDataParallel with required arguments; writes a snapshot into the working folder and looks for it there."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(total_epochs, save_every, snapshot_path="snapshot.pt"):
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    model = torch.nn.Linear(8, 1)
    epochs_run = 0
    if os.path.exists(snapshot_path):
        snapshot = torch.load(snapshot_path)
        model.load_state_dict(snapshot["MODEL_STATE"])
        epochs_run = snapshot["EPOCHS_RUN"]
        print(f"Resuming training from snapshot at Epoch {epochs_run}")
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    for epoch in range(epochs_run, total_epochs):
        inputs = torch.randn(32, 8)
        loss = (parallel(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)
        print(f"[RANK {rank}] Epoch {epoch} | Batchsize: 32 | Steps: 1 | Loss: {loss.item()}", flush=True)
        if rank == 0 and epoch % save_every == 0:
            torch.save({"MODEL_STATE": model.state_dict(), "EPOCHS_RUN": epoch}, snapshot_path)
            print(f"Epoch {epoch} | Training snapshot saved at {snapshot_path}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("total_epochs", type=int, help="Total epochs to train the model")
    parser.add_argument("save_every", type=int, help="How often to save a snapshot")
    args = parser.parse_args()
    main(args.total_epochs, args.save_every)
