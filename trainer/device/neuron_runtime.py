"""Environment variables that the Neuron compiler and runtime read before they start."""

from __future__ import annotations

from collections.abc import MutableMapping

from trainer.runtime.environment import BFLOAT16_VARIABLES

EXECUTION_TIMEOUT_SECONDS = 600
"""NEURON_RT_EXEC_TIMEOUT in the tutorial's launch scripts."""


def prepare(environ: MutableMapping[str, str], *, pure_bfloat16: bool, model_type: str | None) -> None:
    """Set the variables that are not set yet.

    Args:
        environ: Environment variables of this process.
        pure_bfloat16: Whether weights are in bfloat16: the hardware then rounds them stochastically. With one seed for
            all ranks, their weights stay alike.
        model_type: The kind of model that neuronx-cc optimises for, such as `transformer`; None for its default.
    """
    environ.setdefault("NEURON_RT_EXEC_TIMEOUT", str(EXECUTION_TIMEOUT_SECONDS))
    if pure_bfloat16:
        environ.setdefault("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1")
        environ.setdefault("NEURON_RT_STOCHASTIC_ROUNDING_SEED", "0")
    flags = environ.get("NEURON_CC_FLAGS", "")
    if model_type is not None and "--model-type" not in flags:
        environ["NEURON_CC_FLAGS"] = f"{flags} --model-type={model_type}".strip()
    for name in BFLOAT16_VARIABLES:  # `precision` says it, and says it of the weights alone
        environ.pop(name, None)
