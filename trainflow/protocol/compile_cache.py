"""Variables and arguments of compile caches, shared by the workflow and the trainer."""

from __future__ import annotations

from trainflow.protocol import variables

OWN_ARGUMENTS = frozenset(
    {
        # How long, how fast and from where: numbers that reach the graphs as data.
        *("max_steps", "steps_this_run", "epochs"),
        *("learning_rate", "lr", "warmup_steps", "schedule", "seed"),
        # What is written down, how often and where.
        *("log_steps", "checkpoint_steps", "checkpoint_minutes", "keep_checkpoints", "num_ckpts_to_keep"),
        *("output_dir", "model_url", "print_grad_norm"),
        # Where things are read from. Their shapes are other arguments.
        *("data_dir", "initial_weights", "verify_shards"),
    }
)
"""Options of the trainer's programs that never change a graph, under all their spellings."""

OTHERS_ARGUMENTS = frozenset(
    {"num_train_steps", "max_train_steps", "num_epochs", "logging_steps", "save_steps"},
)
"""Names of the same in the tutorials' and in Hugging Face's programs."""

NEVER_SHAPE_GRAPHS = OWN_ARGUMENTS | OTHERS_ARGUMENTS
"""Arguments of a workload that do not count in the key of its compile cache."""


def environment(folder: str) -> dict[str, str]:
    """Variables for each compiler's cache folder: torch's own, Neuron's for PyTorch/XLA, Neuron's for TorchNeuron."""
    return {
        variables.CACHE_DIR: folder,
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "NEURON_COMPILE_CACHE_URL": f"{folder}/neuron",
        "TORCH_NEURONX_NEFF_CACHE_DIR": f"{folder}/torch_neuronx",
    }
