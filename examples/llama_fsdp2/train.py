"""Pretrains a small Llama, sharded by FSDP2, on the bytes of Python's own manual.

Log lines have torchtitan's format; checkpoints are those of torch.distributed.checkpoint.
"""

import argparse
import logging
import math
import os
import pydoc_data.topics
import resource
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logging.basicConfig(format="[titan] %(asctime)s - %(name)s - %(levelname)s - %(message)s", level=logging.INFO)
logger = logging.getLogger()


def rotate(x, angles):
    """Rotary position embedding of queries or keys (batch, heads, sequence, head size)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w13, self.w2 = nn.Linear(dim, 2 * 3 * dim, bias=False), nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x, angles):
        batch, length, dim = x.shape
        qkv = self.wqkv(self.attention_norm(x)).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(rotate(q, angles), rotate(k, angles), v, is_causal=True)
        x = x + self.wo(seen.transpose(1, 2).reshape(batch, length, dim))
        gate, up = self.w13(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.w2(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, dim, layers, heads, vocab_size=256):
        super().__init__()
        self.head_size = dim // heads
        self.embeddings = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(dim), nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        rates = 10000 ** (-torch.arange(0, self.head_size, 2, device=tokens.device) / self.head_size)
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * rates
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x, angles)
        return self.output(self.norm(x))


def peak_memory_gib(device):
    """Peak memory of this process, on its GPU if it has one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--training.steps", dest="steps", type=int, default=100)
    parser.add_argument("--training.batch_size", dest="batch_size", type=int, default=4)
    parser.add_argument("--training.seq_len", dest="seq_len", type=int, default=128)
    parser.add_argument("--optimizer.lr", dest="lr", type=float, default=1e-3)
    parser.add_argument("--model.dim", dest="dim", type=int, default=96)
    parser.add_argument("--model.layers", dest="layers", type=int, default=2)
    parser.add_argument("--checkpoint.folder", dest="folder", default="checkpoint")
    parser.add_argument("--checkpoint.interval", dest="interval", type=int, default=20)
    parser.add_argument("--checkpoint.initial_load_path", dest="load", default=None)
    return parser.parse_args()


def main():
    args = parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (world_size,))

    torch.manual_seed(0)
    model = Llama(args.dim, args.layers, heads=4).to(device)
    parameters = sum(each.numel() for each in model.parameters())
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    def states(step):
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "step": torch.tensor(step)}

    first = 0
    if args.load:
        state = states(0)
        dcp.load(state, checkpoint_id=args.load)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        first = int(state["step"])
        if rank == 0:
            logger.info("Loaded the checkpoint %s of step %d", args.load, first)

    text = "\n".join(pydoc_data.topics.topics.values()).encode()
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    for step in range(first + 1, args.steps + 1):
        begin = time.perf_counter()
        generator = torch.Generator().manual_seed(step * world_size + rank)
        starts = torch.randint(0, len(tokens) - args.seq_len - 1, (args.batch_size,), generator=generator)
        batch = torch.stack([tokens[start : start + args.seq_len + 1] for start in starts.tolist()]).to(device)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean = mean / world_size
        if rank == 0:
            speed = batch[:, 1:].numel() / (time.perf_counter() - begin)
            logger.info(
                "step: %2d  loss: %7.4f  grad_norm: %7.4f  memory: %5.2fGiB  tps: %s  tflops: %.4f",
                *(step, mean.item(), norm.item(), peak_memory_gib(device), f"{round(speed):,}"),
                6 * parameters * speed / 1e12,
            )
        if not math.isfinite(mean.item()):
            raise RuntimeError(f"The loss of step {step} is not finite")
        if step % args.interval == 0:
            dcp.save(states(step), checkpoint_id=f"{args.folder}/step-{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
