"""Shows a bar without a loss, and writes the losses to TensorBoard; saves and resumes as accelerate's examples do."""

import argparse
import os
import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from tqdm.auto import tqdm


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", type=str, default=None, help="Where to store the final model.")
    parser.add_argument("--max_train_steps", type=int, default=60)
    parser.add_argument("--checkpointing_steps", type=str, default=None, help="Save the states every n steps.")
    parser.add_argument("--resume_from_checkpoint", type=str, default=None, help="Continue from a checkpoint folder.")
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(log_with="tensorboard", project_dir=args.output_dir, cpu=True)
    accelerator.init_trackers("regression")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(torch.randn(4000, 8), batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    completed_steps = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        completed_steps = int(os.path.basename(args.resume_from_checkpoint).replace("step_", ""))
    bar = tqdm(range(args.max_train_steps), initial=completed_steps, disable=not accelerator.is_local_main_process)
    for inputs in loader:
        if completed_steps >= args.max_train_steps:
            break
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.3)
        bar.update(1)
        completed_steps += 1
        accelerator.log({"train_loss": loss.item()}, step=completed_steps)
        if completed_steps % int(args.checkpointing_steps) == 0:
            accelerator.save_state(os.path.join(args.output_dir, f"step_{completed_steps}"))
    accelerator.end_training()
    if args.output_dir is not None and accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), os.path.join(args.output_dir, "model.pt"))


if __name__ == "__main__":
    main()
