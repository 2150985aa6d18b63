"""Fits a small network to noisy samples of a function with Lightning's Trainer."""

import argparse
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))

    def training_step(self, batch, _batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def samples(count=4096):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 1, generator=generator) * 6 - 3
    return TensorDataset(x, torch.sin(2 * x) + 0.05 * torch.randn(count, 1, generator=generator))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default=".")
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--ckpt_path", help="checkpoint to go on from")
    args = parser.parse_args()

    L.seed_everything(0)
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    trainer = L.Trainer(
        max_steps=args.max_steps,
        accelerator="auto",
        devices=local_world_size,
        num_nodes=int(os.environ.get("WORLD_SIZE", 1)) // local_world_size,
        strategy="ddp",
        logger=TensorBoardLogger(args.output_dir, name="logs"),
        log_every_n_steps=10,
        callbacks=[
            TQDMProgressBar(refresh_rate=10),
            ModelCheckpoint(
                dirpath=f"{args.output_dir}/checkpoints", filename="{step}", every_n_train_steps=50, save_top_k=-1
            ),
        ],
    )
    loader = DataLoader(samples(), batch_size=64, shuffle=True)
    trainer.fit(Regressor(args.lr), loader, ckpt_path=args.ckpt_path)


if __name__ == "__main__":
    main()
