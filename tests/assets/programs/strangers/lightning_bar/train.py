"""Lightning's Trainer as it is without a single option for its bar, its loggers or its folders."""

import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        (inputs,) = batch
        time.sleep(0.1)
        loss = (self.layer(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


if __name__ == "__main__":
    trainer = lightning.Trainer(max_epochs=6, enable_model_summary=False)
    trainer.fit(Regression(), DataLoader(TensorDataset(torch.randn(2000, 8)), batch_size=32))
