"""Hugging Face's Trainer with its default options, apart from how often it logs."""

import time

import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, values, labels):
        time.sleep(0.5)
        return {"loss": (self.layer(values).squeeze(-1) - labels).square().mean()}


def main():
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(logging_steps=5)
    (training_args,) = parser.parse_args_into_dataclasses()
    samples = [{"values": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(4096)]
    trainer = Trainer(Regression(), training_args, train_dataset=samples)
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)


if __name__ == "__main__":
    main()
