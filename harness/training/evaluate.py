"""Exact match of whole answers and token accuracy, per length, on a test set of its own.

An encoder writes an answer in one pass, and the task says which of its tokens count. A decoder's
answer is right if every token right of "=" is, EOS included. Teacher forcing (feeding the true
answer) finds exactly the answers that greedy decoding gets right, if earlier logits do not depend
on later tokens and nothing is drawn at random: until its first mistake, decoding feeds itself the
true tokens. Encodings that do not promise both are decoded token by token, and so are tasks that
count other answers than the true one as right. The same holds under a window. `check_decoding`
tests the promise on every trained model.
"""

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from experiment.config import Eval, RunConfig
from harness.data.seeds import generator, seed
from harness.data.sequences import Sequences, to_sequences
from harness.model.transformer import Transformer
from harness.settings.protocol import sample_count, token_count
from harness.tasks.base import Batch, Task
from harness.training.predict import CHUNK_TOKENS, Window, decode, decoding_gap, teacher_forced
from harness.training.text import score_text
from harness.training.trainer import Diverged
from leaderboard.record.schema import Answer, Score
from pezoo.base import PositionError

_WINDOWED_TOKENS = 32_000  # in the windows of rows that are decoded side by side
WRONG = 3  # wrong answers that a record keeps of each length, the first ones
_LONGEST = 400  # characters of a text of such an answer
_CHECKED = 2  # rows of a length that are read token by token
_CHECKED_TOKENS = 2_048  # in such a row, where there are shorter ones: it is read in one pass, too
OF_TEXT = ("bits", "gain", "gain_error", "by_place")  # fields of a Score
_ROUNDING = 0.01  # share of the logits' range


class LooksAhead(RuntimeError):
    """Teacher forcing gives other logits than decoding, so that its scores mean nothing."""


def score_all(
    model: Transformer,
    task: Task,
    config: RunConfig,
    mode: str | None = None,
    answers: bool = False,
) -> list[dict[str, Any]]:
    """Score every test length of the protocol; the JSON data of each `Score`.

    mode: one of the encoding's modes. answers: keep a few wrong answers of each length.
    """
    scores = [score(model, task, config, n, mode, answers) for n in config.eval.lengths]
    return [_data(one) for one in scores]


def _data(one: Score) -> dict[str, Any]:
    data = asdict(one) | {"wrong": list(map(asdict, one.wrong))}
    return data if one.bits is not None else {k: v for k, v in data.items() if k not in OF_TEXT}


def score_sets(
    model: Transformer, task: Task, config: RunConfig
) -> dict[str, list[dict[str, Any]]]:
    """Score the further test sets of the protocol, each at its own lengths."""
    return {
        one.name: score_all(model, task, config.replace_eval(set=one.name, lengths=one.lengths))
        for one in config.eval.sets
    }


def score_curve(model: Transformer, task: Task, config: RunConfig) -> dict[str, float | None]:
    """Return the means over the lengths of `eval.curve_lengths` that have instances.

    None if a length cannot be represented.
    """
    every = (score(model, task, config, length) for length in config.eval.curve_lengths or ())
    scores = [one for one in every if one.status != "no instance"]
    return {
        "test_token": _mean([one.token for one in scores]),
        "test_exact": _mean([one.exact for one in scores]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def score(
    model: Transformer,
    task: Task,
    config: RunConfig,
    length: int,
    mode: str | None = None,
    answers: bool = False,
) -> Score:
    """Score one test length, on samples that depend only on the task and the length.

    A length counts as seen if no instance is longer than those in training: in a test set of
    operands of different lengths, 12 + 4 digits are not.
    """
    high = config.train.lengths[1]
    seen = length <= high
    if not task.lengths(length, length):
        note = f"{task.name} has no instance of this length"
        return Score(length=length, seen=seen, status="no instance", note=note)
    sample = examples(task, config, length)
    if seen and config.eval.set:
        seen = task.longest(sample.prompt) <= high
    positions = seed("test", config.seed, length)
    if model.track == "text":
        found = score_text(model, task, config, length, sample, positions, mode)
    else:
        found = _score(model, task, config.eval, length, sample, positions, mode, answers)
    return Score(length=length, seen=seen, **found)


def examples(task: Task, config: RunConfig, length: int) -> Batch:
    """Return the test set of a length, the same for all encodings and seeds.

    It holds all instances if they fit; otherwise samples from a generator that no training step
    uses, which at short lengths may be instances that training has seen. Settings are chosen on
    samples ("tuning") in any case, or on a test set of their own.
    """
    count, own = sample_count(task, config.eval, length), config.eval.set
    if own:
        own = (config.eval.examples == "tuning" and task.tuning_set) or own
        draws = generator(config.eval.examples, config.task, task.version, own, length)
        return task.test_set(own, draws, count, length)
    every = task.instances(length)
    if every is not None and len(every.prompt) <= count and config.eval.examples == "test":
        return every
    draws = generator(config.eval.examples, config.task, task.version, length)
    return task.sample(draws, count, length)


def validate(model: Transformer, task: Task, config: RunConfig) -> tuple[float, float] | None:
    """Return the mean and the least exact match of the training lengths, on a set of its own.

    The mean chooses the best checkpoint, of encoders too; None for text, whose last one counts.
    """
    if model.track == "text":
        return None
    scores = []
    for length in task.lengths(*config.train.lengths):
        sample = validation_examples(task, config, length)
        found = _score(model, task, config.eval, length, sample, seed("validation", length))
        scores.append(found.get("exact", 0.0))
    return sum(scores) / len(scores), min(scores)


def validation_examples(task: Task, config: RunConfig, length: int) -> Batch:
    """Return the validation set of a training length, the same for all encodings and seeds."""
    draws = generator("validation", config.task, task.version, length)
    return task.sample(draws, config.eval.validation_samples, length)


def chunk_size(task: Task, test: Eval, length: int) -> int:
    """Return the number of samples of a length that are scored side by side."""
    tokens = token_count(task, length)
    if test.window is None:
        return max(1, CHUNK_TOKENS // tokens)
    return max(1, _WINDOWED_TOKENS // min(tokens, test.window))


def method(model: Transformer, task: Task) -> str:
    """Return how this model is scored: "one pass" (encoders), "teacher-forced" or "decoded"."""
    encoding = model.encoding
    if model.track != "decoder":
        return "one pass" if model.track == "encoder" else "teacher-forced"
    exact = encoding.prefix_stable and not encoding.stochastic and task.exact
    return "teacher-forced" if exact else "decoded"


@torch.no_grad()
def check_decoding(model: Transformer, task: Task, config: RunConfig) -> None:
    """Compare teacher forcing with decoding at the shortest and a long test length.

    Models that are scored otherwise have nothing to compare: the input of an encoder holds no
    answer, and a decoded token is chosen before there are later ones. Lengths that the encoding
    cannot represent are left out. What differs is compared again in float64: a recurrence can
    amplify rounding. Errors: LooksAhead.
    """
    if method(model, task) != "teacher-forced":
        return
    model.eval()
    lengths = [length for length in config.eval.lengths if task.lengths(length, length)]
    long = [n for n in lengths if token_count(task, n) <= _CHECKED_TOKENS]
    for length in {*lengths[:1], *long[-1:]}:
        draws = generator("decoding", config.task, task.version, length)
        batch = to_sequences(task.sample(draws, _CHECKED, length), task, model.track)
        batch, device = batch.left_aligned(task.vocab.pad), str(model.embedding.weight.device)
        with suppress(PositionError):
            gap = _gap(model, batch.to(device), length, config.eval.window)
            if not gap <= _ROUNDING:
                near = "cpu" if device.startswith("mps") else device  # mps has no float64
                with suppress(RuntimeError):  # encodings without float64 are compared in float32
                    exact = deepcopy(model).to(near, torch.float64)
                    gap = _gap(exact, batch.to(near), length, config.eval.window)
            if not gap <= _ROUNDING:
                raise LooksAhead(
                    f"at length {length}, logits depend on later tokens (by {gap:.0%} of their "
                    f"range): set prefix_stable = False in {config.encoding}, or correct its hooks"
                )


def _gap(model: Transformer, batch: Sequences, length: int, window: int | None) -> float:
    """Return the largest `decoding_gap` of the rows."""
    gap = max(decoding_gap(model, batch, length, window))
    for mode in model.encoding.modes:  # which may round: a tie can go another way in a row
        gap = max(gap, min(decoding_gap(model, batch, length, window, mode)))
    return gap


@torch.no_grad()
def _score(
    model: Transformer,
    task: Task,
    test: Eval,
    length: int,
    sample: Batch,
    position_seed: int,
    mode: str | None = None,
    answers: bool = False,
) -> dict[str, Any]:
    """Return the fields of the `Score` of a sample."""
    model.eval()
    how, count, chunk = method(model, task), len(sample.prompt), chunk_size(task, test, length)
    batch = to_sequences(sample, task, model.track)
    if how == "teacher-forced" or test.window is not None:
        batch = batch.left_aligned(task.vocab.pad)
    correct, right, total = 0, 0, 0
    kept: list[Answer] = []
    for start in range(0, count, chunk):
        part = batch.rows(start, start + chunk).to(str(model.embedding.weight.device))
        positions = torch.Generator().manual_seed(position_seed)  # one draw for all rows
        try:
            out = written(model, part, length, positions, mode, test, how == "teacher-forced")
        except PositionError as error:
            return {"status": "cannot represent", "note": str(error)}
        if bool(((out < 0) & part.counted).any()):
            raise Diverged(f"logits are not finite at length {length}")
        hit, exact = judge(task, out, part)
        correct, right = correct + int(exact.sum()), right + int(hit.sum())
        total += int(part.counted.sum())
        for row in (~exact).nonzero().flatten().tolist()[: (WRONG - len(kept)) * answers]:
            kept.append(_wrong(task, sample.prompt[start + row], part.rows(row, row + 1), out[row]))
    return {
        "status": "ok",
        "exact": correct / count,
        "correct": correct,
        "count": count,
        "token": right / total,
        "tokens": total,
        "method": how,
        "wrong": tuple(kept),
    }


def written(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None,
    test: Eval,
    forced: bool = False,
) -> Tensor:
    """Return what the model writes into each column, (B, T), under the test's window.

    A decoder writes token by token, or is given the true tokens (forced).
    """
    window = Window.of(test)
    write = teacher_forced if forced or model.track == "encoder" else decode
    return write(model, batch, length, positions, mode, window)


def judge(task: Task, out: Tensor, batch: Sequences) -> tuple[Tensor, Tensor]:
    """Compare `out` (B, C), written into the last C columns, with the true answers.

    Returns the counted tokens that are right, (B, C) bool, and the answers that are, (B,) bool.
    """
    parts = (batch.labels, batch.counted, batch.answer, batch.begun)
    labels, counted, answer, begun = (part[:, -out.shape[1] :] for part in parts)
    hit = (out == labels) & counted
    if task.exact:
        return hit, hit.sum(1) == counted.sum(1)
    pad = task.vocab.pad
    own, truth = torch.where(begun, out, pad), torch.where(answer, labels, pad)
    return hit, task.right(own, truth)


def _wrong(task: Task, prompt: Tensor, batch: Sequences, out: Tensor) -> Answer:
    """Return a wrong answer, up to its first wrong symbol, as a record keeps it.

    Until that symbol, teacher forcing and decoding agree.
    """
    mask = batch.answer[0]
    expected, given, counted = batch.labels[0][mask], out[mask], batch.counted[0][mask]
    bad = ((expected != given) & counted).nonzero().flatten().tolist()
    end = bad[0] + 1 if bad else len(given)  # a task may accept other answers than the true one
    own = spelled(task, given[:end])
    if len(own) > _LONGEST:
        own = f"…{own[-_LONGEST:]}"
    return Answer(
        prompt=text(task, prompt),
        expected=text(task, expected),
        given=own + "…" * (end < len(given)),
    )


def text(task: Task, ids: Tensor) -> str:
    """Return the text of a prompt or an answer, as a record keeps it."""
    whole = spelled(task, ids)
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"


def spelled(task: Task, ids: Tensor) -> str:
    """Return the whole text of a prompt or an answer, with ⟨end⟩ for EOS."""
    vocab = task.vocab
    names = [*vocab.symbols, "", "⟨end⟩"]  # by id: pad and eos come last
    shown = [names[i] if i < len(names) else "?" for i in ids.tolist()]
    return vocab.separator.join(name for name in shown if name)
