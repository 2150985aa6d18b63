"""Takes assignments of its variables in place of flags; prints evaluations and iterations in two forms of line."""

import os
import sys
import time

import torch

out_dir = "out"
eval_interval = 2000
log_interval = 1
init_from = "scratch"  # 'scratch' or 'resume'
max_iters = 60000
for argument in sys.argv[1:]:
    name, _, value = argument.removeprefix("--").partition("=")
    globals()[name] = type(globals()[name])(value)

os.makedirs(out_dir, exist_ok=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
iter_num = 0
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]
while iter_num <= max_iters:
    inputs = torch.randn(32, 8)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    if iter_num % eval_interval == 0:
        print(f"step {iter_num}: train loss {loss:.4f}, val loss {loss * 1.1:.4f}")
        if iter_num > 0:
            torch.save({"model": model.state_dict(), "iter_num": iter_num}, os.path.join(out_dir, "ckpt.pt"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.1)
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {100.0:.2f}ms, mfu 1.00%", flush=True)
    iter_num += 1
