"""Meaning of the names that programs print before a number; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache


class Kind(IntEnum):
    """Kind of a named number. Counters come first: of several in a line, the smallest kind is the step."""

    GLOBAL_STEP = 0
    STEP = 1
    ITERATION = 2
    BATCH = 3
    EPISODE = 4
    EPOCH = 5
    LOSS = 6
    METRIC = 7
    RATE = 8
    """Learning rate or gradient norm: a training prints it, but it does not show how good the model is."""
    OTHER = 9


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of a name."""

    kind: Kind
    is_evaluation: bool = False
    is_training: bool = False
    metric_in_front: str = ""
    """Name of a metric in front of a counter: `Average loss at step 2000: 113.2`."""

    @property
    def is_counter(self) -> bool:
        """Whether the number counts steps, batches or epochs."""
        return self.kind <= Kind.EPOCH


def word_set(text: str) -> frozenset[str]:
    """The words of a text; a list of them would need a line for each."""
    return frozenset(text.split())


EVALUATION = word_set(
    """
    eval evaluate evaluating evaluation val valid validate validating validation test testing dev inference infer
    predict predicting prediction sanity
    """
)
TRAINING = frozenset(("train", "training", "learn"))

_OTHER_STEPS = word_set(
    """
    schritt paso passo étape adım adim krok stap steg trin langkah bước lépés askel βήμα خطوة
    步 步数 步骤 스텝 단계 ステップ шаг крок
    """
)
_OTHER_ITERATIONS = word_set(
    """
    iteración itération iterazione iteração iterasyon iteracja iterasi iteráció iteratie
    迭代 迭代次数 反復 반복 итерация ітерація
    """
)
_OTHER_BATCHES = word_set("lote 批 批次 バッチ 배치 батч")
_OTHER_EPOCHS = word_set(
    """
    epoche época époque epoca epoka epok dönem εποχή 轮 轮次 周期 에폭 에포크 エポック эпоха епоха
    """
)
"""Words of other languages than English."""

COUNTERS = {
    **dict.fromkeys(["update", "updates", "up", "timestep", "timesteps", "upd"], Kind.GLOBAL_STEP),
    **dict.fromkeys(["step", "steps"], Kind.STEP),
    **dict.fromkeys(
        ["iter", "iters", "iteration", "iterations", "it", "its", "itr", "itrs", "iterate"], Kind.ITERATION
    ),
    **dict.fromkeys(["batch", "batches", "minibatch", "minibatches", "microbatch", "microstep"], Kind.BATCH),
    **dict.fromkeys(["episode", "episodes", "round", "rounds", "generation", "gen", "eps"], Kind.EPISODE),
    **dict.fromkeys(["tokens", "frames", "seen"], Kind.EPISODE),
    **dict.fromkeys(_OTHER_STEPS, Kind.STEP),
    **dict.fromkeys(_OTHER_ITERATIONS, Kind.ITERATION),
    **dict.fromkeys(_OTHER_BATCHES, Kind.BATCH),
    **dict.fromkeys(_OTHER_EPOCHS, Kind.EPOCH),
    **dict.fromkeys(["epoch", "epochs", "ep"], Kind.EPOCH),
}
_ALONE = {
    **dict.fromkeys(["tick", "sweep", "cycle", "pass", "rollout", "game", "games", "trajectory"], Kind.EPISODE),
    **dict.fromkeys(["phase", "kimg", "example", "examples"], Kind.EPISODE),
    "mb": Kind.BATCH,
}
"""Words that also have other meanings: they count where no other word than `num` or `train` belongs to the name."""

PLURALS = frozenset(word for word in COUNTERS if word.endswith("s") and word not in ("its", "eps"))

_NO_COUNTER = word_set(
    """
    max maximum min warmup warm save saves saving logging log every per num total accumulation accum decay between
    until remaining left scheduler best size time times sec secs ms second seconds each last of early patience stop
    next target limit schedule sub cost duration eta avg mean average milestone milestones ran fps speed this
    """
)
"""Words that make a number with a counter's name something else, such as a limit or a duration."""

_COUNTED_ANYWAY = frozenset(("updates", "timesteps", "steps"))
"""Plurals that count with a word such as `num` or `total` before them: `num_updates`, `total_timesteps`."""

PREPOSITIONS = frozenset(("at", "after", "on", "for"))

_INDEX = word_set("no num number id idx index n count counter i nr")
_DONE = frozenset(("seen", "done", "completed"))

_LOSS = word_set(
    """
    nll xent ce crossentropy cost objective objf obj elbo
    verlust perte pérdida perda perdita kayıp kayip strata verlies förlust kerugian veszteség απώλεια خسارة
    损失 损失值 손실 損失 ロス потери потеря лосс втрата втрати
    """
)
_METRIC = word_set(
    """
    accuracy acc acc1 acc5 top1 top5 ppl perplexity error err rmse mse mae mape auc f1 bleu wer cer reward rewards
    return returns score bpb bpc bpt dice iou miou map psnr ssim fid kl entropy precision recall r2 rouge ndcg mrr
    learn fitness likelihood loglik logp l1 l2 rmsle merror mlogloss logloss correlation spearman pearson kappa mcc
    exactitud précision accuratezza precisão doğruluk точность 准确率 精度 正解率 정확도
    bpd bits nats residual regret chamfer emd snr sdr rew success
    deviance rms top-1 top-5 acc@1 acc@5 prec prec@1 prec@5 win winrate elo
    """
)
_RATE = frozenset(("lr", "lrs", "gnorm", "gradnorm", "lrate"))
_NO_LOSS_BEHIND = word_set(
    """
    scale scaler scaling weight weights coef coeff coefficient fn type function lambda alpha tolerance threshold
    name ratio factor mode key of
    """
)
"""Words behind `loss` that make it a setting."""

_NO_LOSS = frozenset(("lossless", "lossy", "gloss", "packet", "packets"))
_UNITS = word_set(
    """
    s sec secs second seconds ms us ns min mins minute minutes h hr hrs hour hours it tok tokens samples sample
    images img imgs image words frames gb gib mb mib kb g m k sents sentences examples ex steps iters t tokens/s
    """
)

_SEPARATORS = re.compile(r"[\s_/.:()'\"#-]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


@lru_cache(maxsize=4096)
def name_meaning(name: str) -> Meaning:
    """The meaning of a name such as `train/loss`, `globalStep` or `Average loss at step`."""
    printed = [word for word in _SEPARATORS.split(_CAMEL.sub(" ", name)) if word]
    words = [word.lower() for word in printed]
    if not words:
        return Meaning(Kind.OTHER)
    is_evaluation, is_training = not EVALUATION.isdisjoint(words), not TRAINING.isdisjoint(words)
    kind, metric = _counter(words, name), ""
    if kind is not None:
        metric = _metric_in_front(name)
    else:
        kind = _measure(words, name)
    return Meaning(kind, is_evaluation and not (is_training and kind is Kind.LOSS), is_training, metric)


def is_unit(word: str) -> bool:
    """Whether a word behind a number is its unit, as in `12 ms` or `3,000 tok/s`."""
    parts = word.lower().strip(".").split("/")
    return all(part in _UNITS for part in parts if part)


def _counter(words: list[str], name: str) -> Kind | None:
    end = len(words)
    while end > 1 and (words[end - 1] in _INDEX or (words[end - 1] in _DONE and _is_counted(words[end - 2]))):
        end -= 1
    if words[end - 1] in _ALONE and (TRAINING | _INDEX | {"total"}).issuperset(words[: end - 1]):
        return _ALONE[words[end - 1]]
    kind = Kind.ITERATION if words[-1] == "i" and end == 1 else COUNTERS.get(words[end - 1])
    if kind is None:
        return None
    before = words[max(0, end - 4) : end - 1]
    before = before[1 + max((i for i, word in enumerate(before) if word in PREPOSITIONS), default=-1) :]
    if words[end - 1] in ("timesteps", "updates", "frames") or before[-1:] == ["global"]:
        before = [word for word in before if word not in ("num", "total")]
    if not _NO_COUNTER.isdisjoint(before) or (
        "/" in name
        and words[end - 1] in ("it", "step", "batch", "iter")
        and is_unit(name.lower().rpartition("/")[0].rpartition(" ")[2])
    ):
        return None
    return Kind.GLOBAL_STEP if "global" in before else kind


def _is_counted(word: str) -> bool:
    return word in COUNTERS or word in _ALONE


def _metric_in_front(name: str) -> str:
    """The words of a metric before `at step` or `after`."""
    found = re.match(r"(.{1,60}?)\s+(?:at|after|on|for)\b", name)
    return found[1] if found and _measure(_SEPARATORS.split(found[1].lower()), found[1]) < Kind.OTHER else ""


def _measure(words: list[str], name: str) -> Kind:
    loss_at = next((i for i, word in enumerate(words) if "loss" in word or word in _LOSS), None)
    if loss_at is not None:
        behind = words[loss_at + 1 : loss_at + 2]
        is_objective = behind == ["function"] and words[loss_at] == "objective"
        is_setting = not _NO_LOSS_BEHIND.isdisjoint(behind) and not is_objective
        if not _NO_LOSS.isdisjoint(words) or is_setting:
            return Kind.OTHER
        return Kind.LOSS if "/" not in name or not is_unit(name.rpartition("/")[2]) else Kind.OTHER
    if not _METRIC.isdisjoint(words) or name.lower().endswith(("acc@1", "acc@5", "prec@1")):
        return Kind.METRIC
    joined = "".join(words)
    if joined.endswith("loglik"):
        return Kind.METRIC
    if not _RATE.isdisjoint(words) or joined.endswith(("learningrate", "gradnorm", "gradientnorm")):
        return Kind.RATE
    return Kind.OTHER
