"""Formats of known libraries for a step, each as a function from a line to the figures in it.

| preset | source of the format |
|---|---|
| hugging-face | transformers 5.23.0, `trainer_callback.py`: `ProgressCallback.on_log`, `PrinterCallback.on_log` |
| lightning | Lightning 2, `callbacks/progress/tqdm_progress.py`: tqdm's bar with the logged metrics behind it |
| torchtitan | `torchtitan/components/metrics.py`: `MetricsProcessor.log` (2024 to 2026; `wps` before `tps`) |
| nemo | NeMo 2, `nemo/lightning/pytorch/callbacks/progress_printer.py`; NeMo 1's tqdm bar |
| megatron | Megatron-LM, `megatron/training/training.py`: `training_log` |

Readers of external input do not raise: the result for a line without a step is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trainflow.progress.ansi import without_colours
from trainflow.protocol.metric_aliases import by_meaning, number, whole

Figures = Mapping[str, object]

TOTAL = "total"
"""Name of the last step of the training, in the formats that have one."""

_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"

_QUOTED = re.compile(rf"'([\w./-]{{1,100}})': '?({_NUMBER})'?(?=[,}}])")

_SWIFT_STEP = re.compile(r"'global_step/max_steps': '(\d{1,15})/\d{1,15}'")

_TITAN = re.compile(rf"(?:^|[-\]] |:|INFO:? )step:\s*(\d+)\s+loss:\s*({_NUMBER})\s(.*)$")
_TITAN_FIELD = re.compile(rf"(?<![\w./-])(\w[\w./-]{{0,49}}):\s*({_NUMBER})(GiB|%)?")
_TITAN_NAMES = {
    "tps": "tokens_per_second_per_device",
    "wps": "tokens_per_second_per_device",
    "tflops": "tflops_per_device",
    "mfu": "mfu_percent",
    "memory": "memory_gib",
    "mmemory": "memory_gib",
}
"""Names with their units, which the line leaves out or abbreviates (`log`: "tokens per second per device")."""

_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)\s*\|(.*)$")
_NEMO = re.compile(r"\bTraining epoch (\d+), iteration (\d+)/\d+ \|(.*)$")
_COLUMN = re.compile(rf"^\s*([^:|]{{1,100}}?)\s*:\s*({_NUMBER})")

MAX_DIGITS = 15
"""Most digits of a counter: a larger number is not a step, and Python refuses to read one of thousands of digits."""

_BAR = re.compile(rf"\bEpoch (\d+):\s+\d+%(?:\|[^|]*\|)?\s*(\d{{1,{MAX_DIGITS}}})/(\d+) \[([^\]]*)")
_NEMO_BAR = re.compile(r"\bEpoch (\d+):[ :]+\d*%?(?:\|[^|]*\|)? *\d+(?:/\d+|it) \[([^\]]*\bglobal_step=[^\]]*)")
_BAR_FIELD = re.compile(rf"([A-Za-z][\w./ -]{{0,99}}?)=({_NUMBER})(?=[,\s\]]|$)")
_BAR_RATE = re.compile(r"(\d+(?:\.\d+)?)it/s")


def json_object(text: str) -> Figures | None:
    """The JSON object or dictionary of Python that a line is, or that stands behind a logger's prefix.

    Objects inside it count as its own.
    """
    begin = text.find("{")
    if begin < 0 or not text.rstrip().endswith("}"):
        return None
    try:
        said = json.loads(text[begin:])
    except (ValueError, RecursionError):
        return _with_step({name: float(_plain(value)) for name, value in _QUOTED.findall(text[begin:])})
    if not isinstance(said, dict):
        return None
    inner = {key: value for each in said.values() if isinstance(each, dict) for key, value in each.items()}
    return _with_step({**inner, **said})


def json_step(text: str) -> Figures | None:
    """An object or a dictionary with a step and a loss: what is taken for progress where nothing was said about it."""
    said = json_object(text)
    if said is None:
        return None
    named = by_meaning(said)
    return said if isinstance(named["step"], int | float) and number(named.get("loss")) is not None else None


def hugging_face(text: str) -> Figures | None:
    """`{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.13'}`: the line lacks the step.

    ms-swift, which trains with this library, adds it.
    """
    begin = text.find("{'")
    if begin < 0 or "'loss':" not in text or "}" not in text[begin:]:
        return None
    figures = dict(_QUOTED.findall(text[begin:]))
    if numbered := _SWIFT_STEP.search(text, begin):
        figures["step"] = numbered[1]
    return figures if "loss" in figures and "epoch" in figures else None


def lightning(text: str) -> Figures | None:
    """`Epoch 3: 100%|███| 94/94 [00:05<00:00, 17.0it/s, v_num=0, train_loss=0.345]`: a step is a batch."""
    found = _BAR.search(text) if "Epoch " in text else None
    if found is None:
        return None
    epoch, batch, batches, said = found.groups()
    figures: dict[str, object] = dict(_BAR_FIELD.findall(_behind_rate(said)))
    if "loss" not in by_meaning(figures) or len(epoch) + len(batches) > MAX_DIGITS:
        return None
    if rate := _BAR_RATE.search(said):
        figures["batches_per_second"] = rate[1]
    figures.pop("v_num", None)
    return {**figures, "epoch": epoch, "step": int(epoch) * int(batches) + int(batch)}


def torchtitan(text: str) -> Figures | None:
    """`[titan] 2025-10-30 14:32:58,990 - root - INFO - step:  2  loss:  6.1098  grad_norm:  4.6416  …`."""
    found = _TITAN.search(without_colours(text)) if "step:" in text else None
    if found is None:
        return None
    step, loss, rest = found.groups()
    fields = {_TITAN_NAMES.get(name, name): _plain(value) for name, value, _ in _TITAN_FIELD.findall(rest)}
    return _with_step({**fields, "step": step, "loss": _plain(loss)}) if fields else None


def nemo(text: str) -> Figures | None:
    """`Training epoch 0, iteration 8/99 | lr: 2.7e-06 | global_step: 8 | reduced_train_loss: 11.03 | …`."""
    if "reduced_train_loss" not in text:
        return None
    if found := _NEMO.search(text):
        epoch, iteration, columns = found.groups()
        figures: dict[str, object] = {"iteration": iteration, **dict(_columns(columns)), "epoch": epoch}
    elif found := _NEMO_BAR.search(text):
        epoch, said = found.groups()
        figures = {**dict(_BAR_FIELD.findall(_behind_rate(said))), "epoch": epoch}
        figures.pop("v_num", None)
    else:
        return None
    if "global_step" in figures:
        figures.pop("iteration", None)
    return _with_step(figures)


def megatron(text: str) -> Figures | None:
    """`iteration 10/ 100 | consumed samples: 1280 | … | lm loss: 9.876543E+00 | … | grad norm: 1.234 | …`."""
    found = _ITERATION.search(text) if "iteration" in text else None
    if found is None:
        return None
    figures = {"step": found[1], **dict(_columns(found[3])), TOTAL: found[2]}
    return _with_step(figures) if "loss" in by_meaning(figures) else None


@dataclass(frozen=True)
class Preset:
    """The lines of one library's programs."""

    parse: Callable[[str], Figures | None]
    has_steps: bool = True
    """False for lines without a number; they are counted."""


PRESETS: Mapping[str, Preset] = {
    "torchtitan": Preset(torchtitan),
    "nemo": Preset(nemo),
    "megatron": Preset(megatron),
    "hugging-face": Preset(hugging_face, has_steps=False),
    "lightning": Preset(lightning),
}
"""Presets by their name in the spec; `auto` tries them in this order. NeMo's lines look like Megatron's
and Lightning's, and have a better number."""


def _behind_rate(said: str) -> str:
    """A bar's metrics, without time and rate in front of them."""
    return said.partition(", ")[2].replace(", ", ",")


def _columns(text: str) -> Iterator[tuple[str, str]]:
    for column in text.split("|"):
        if found := _COLUMN.match(column):
            yield found[1], _plain(found[2])


def _plain(digits: str) -> str:
    return digits.replace(",", "")


def _with_step(figures: Figures) -> Figures | None:
    return figures if whole(by_meaning(figures).get("step")) is not None else None
