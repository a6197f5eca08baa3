"""The sequences that a page shows: a prompt and the trained model's answer."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness.data.seeds import generator
from harness.data.sequences import to_sequences
from harness.model.transformer import Transformer
from harness.tasks.base import Batch, Task, TaskError
from harness.training.evaluate import judge, written

EMPTY = "·"  # an encoder reads it where it writes the answer


@dataclass(frozen=True)
class Example:
    """A prompt and the model's answer, which ends where the model ends it."""

    number: int  # from 1
    length: int
    seen: bool  # within the training lengths
    prompt: int  # tokens
    ids: Tensor  # (1, S) prompt and answer
    tokens: tuple[str, ...]  # S words
    wrong: tuple[bool, ...]  # S, the tokens that make the answer wrong; none where many answers fit
    truth: str
    planned: int  # the number of tokens that decoding planned for
    inputs: Tensor  # (1, T) what the model reads
    reads: tuple[str, ...]  # T words
    writes: tuple[str, ...]  # T words of the answer, "" before it

    @property
    def right(self) -> bool:
        return not any(self.wrong)

    @property
    def title(self) -> str:
        seen = "seen in training" if self.seen else "longer than in training"
        return f"example {self.number}: length {self.length}, {seen}"


def lengths(task: Task, config: RunConfig, longer: int | None = None) -> list[int]:
    """Return the longest training length and `longer`, by default two to three times as long.

    Errors: TaskError if `longer` is not longer, or the task has no instance of that length.
    """
    low, high = config.train.lengths
    seen = task.lengths(low, high)[-1]
    if longer is not None:
        task.check_length(longer)
        if longer <= high:
            raise TaskError(f"expected a length beyond training's {high}, got {longer}")
        return [seen, longer]
    beyond = task.lengths(2 * seen, 3 * seen) or task.lengths(seen + 1, 3 * seen)[-1:]
    return [seen, *beyond[:1]]


def sample(task: Task, length: int, *number: int) -> Tensor:
    """Return a prompt (P,) of that length, the same for every run of the task."""
    draws = generator("show", task.name, task.version, length, *number)
    prompt = task.sample(draws, 1, length).prompt[0]
    return prompt[prompt != task.vocab.pad]


def read(task: Task, text: str) -> Tensor:
    """Encode a prompt (P,) as typed; any, where prompts do not determine answers.

    Errors: TaskError.
    """
    prompt = task.vocab.encode(text)
    if not task.determined:
        task.check_length(task.measure(prompt.tolist()))
        return prompt
    like = sample(task, (task.lengths(4, 40) or task.lengths(1, 1000))[0])
    refusal = TaskError(
        f"{text!r} is not a prompt of {task.name}: expected one such as {task.vocab.decode(like)}"
    )
    try:
        task.solve(prompt.tolist())
        length = task.measure(prompt.tolist())
    except Exception as error:
        raise refusal from error
    if not len(prompt):
        raise refusal
    task.check_length(length)
    ends = {int(sample(task, length, seed)[-1]) for seed in range(8)}
    if len(ends) == 1 and int(prompt[-1]) not in ends:  # such as "="
        raise refusal
    return prompt


@torch.no_grad()
def answer(
    model: Transformer,
    task: Task,
    config: RunConfig,
    prompt: Tensor,
    number: int = 1,
    mode: str | None = None,
) -> Example:
    """Let the model answer a prompt (P,). Errors: PositionError."""
    length = task.measure(prompt.tolist())
    try:
        truth = task.solve(prompt.tolist())
    except TaskError:
        if task.determined:
            raise
        truth = [0] * task.max_tokens(length)[1]  # only how many is read
    batch = to_sequences(Batch(prompt[None], torch.tensor([truth])), task, model.track)
    batch = replace(batch, prompt=len(prompt))  # in text that is 1: all of it is trained on
    answer = written(model.eval(), batch, length, positions(length), mode, config.eval)
    answer = answer[:, -batch.last :]
    before = batch.inputs.shape[1] - batch.last + batch.causal
    out = torch.cat([batch.inputs[:, :before], answer], 1)
    hit, right = judge(task, answer, batch)
    differs = batch.counted[:, -batch.last :] & ~hit & ~right[:, None] & task.determined
    wrong = [False] * before + differs[0].tolist()
    ends = (answer[0] == task.vocab.eos).nonzero()
    stop = before + int(ends[0]) + 1 if len(ends) and batch.causal else out.shape[1]
    words = tuple(word(task, int(i)) for i in out[0, :stop])
    reads, inputs = words[:-1], out[:, : stop - 1]
    if not batch.causal:
        reads, inputs = words[:before] + (stop - before) * (EMPTY,), batch.inputs
    return Example(
        number,
        length,
        length <= config.train.lengths[1],
        before,
        out[:, :stop],
        words,
        tuple(wrong[:stop]),
        task.vocab.decode(truth),
        batch.inputs.shape[1],
        inputs,
        reads,
        (before - batch.causal) * ("",) + words[before:],
    )


def positions(length: int) -> torch.Generator:
    """Return a generator of random positions, the same for every pass over that length."""
    return generator("show", "positions", length)


def word(task: Task, token: int) -> str:
    """Return a token as a label."""
    if token < len(task.vocab.symbols):
        return task.vocab.symbols[token]
    return {task.vocab.eos: "end", task.vocab.pad: "pad"}.get(token, f"#{token}")
