"""A subclass of Hugging Face's Trainer with a required field of a dataclass."""

import time
from dataclasses import dataclass, field

import torch
import transformers


@dataclass
class ModelArguments:
    width: int = field(metadata={"help": "Inputs of the model."})


class Regression(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)

    def forward(self, values, labels):
        time.sleep(0.1)
        return {"loss": (self.layer(values).squeeze(-1) - labels).square().mean()}


class SumTrainer(transformers.Trainer):
    def compute_loss(self, model, inputs, **others):
        return super().compute_loss(model, inputs, **others)


def main():
    parser = transformers.HfArgumentParser((ModelArguments, transformers.TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    samples = [{"values": torch.randn(model_args.width), "labels": torch.tensor(1.0)} for _ in range(512)]
    trainer = SumTrainer(Regression(model_args.width), training_args, train_dataset=samples)
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
