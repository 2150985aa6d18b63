"""Trains a small GPT-2 on the bytes of Python's own manual with the Trainer of transformers.

The model is made from a configuration, so nothing is downloaded. All options of TrainingArguments are flags.
"""

import pydoc_data.topics
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ModelArguments:
    hidden_size: int = field(default=64, metadata={"help": "Width of the model."})
    num_layers: int = field(default=2, metadata={"help": "Transformer blocks."})
    block_size: int = field(default=64, metadata={"help": "Tokens in a sequence."})


class Manual(Dataset):
    """Python's manual in blocks of bytes."""

    def __init__(self, block_size):
        text = "\n".join(pydoc_data.topics.topics.values()).encode()
        tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.blocks = tokens[: len(tokens) // block_size * block_size].view(-1, block_size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def main():
    model_args, training_args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training_args.seed)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_positions=model_args.block_size,
            n_embd=model_args.hidden_size,
            n_layer=model_args.num_layers,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    trainer = Trainer(model=model, args=training_args, train_dataset=Manual(model_args.block_size))
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
