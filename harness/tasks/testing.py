"""One conformance check for every task, also for those of other packages.

    check_task(MyTask())

raises AssertionError with the first thing that is wrong, in plain words.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, TaskError
from harness.tasks.chance import best_constant

FEW = 4  # instances of the length that is far


def check_task(
    task: Task,
    *,
    lengths: Sequence[int] = (1, 2, 3, 5, 8, 13),
    far: int = 100,
    batch: int = 64,
    seed: int = 0,
) -> None:
    """Samples `task` at those of `lengths` that it has, and compares with the contract and solver.

    A few instances are of lengths between them and `far`, the last of length `far` or, where there
    are none, the longest below; far=0 leaves them out.

    Errors: AssertionError says what is wrong, where, and with which instance.
    """
    try:
        _check(task, lengths, far, batch, seed)
    except AssertionError:
        raise
    except (Exception, SystemExit) as error:
        file = inspect.getfile(type(task))
        own = [f for f in extract_tb(error.__traceback__) if f.filename == file]
        place = f", at {Path(file).name}:{own[-1].lineno} in {own[-1].name}" if own else ""
        raise AssertionError(f"{task.name}: {type(error).__name__}: {error}{place}") from error


def _check(task: Task, lengths: Sequence[int], far: int, batch: int, seed: int) -> None:
    _check_description(task)
    offered = [n for n in lengths if task.lengths(n, n)]
    assert offered, f"{task.name}: none of the lengths {list(lengths)} has an instance"
    top = max(offered)
    further = [n for n in range(top + 1, far + 1) if task.lengths(n, n)]
    beyond = [*dict.fromkeys((*further[:: len(further) // 4 + 1], *further[-1:]))]
    for length, rows in (*((n, batch) for n in offered), *((n, FEW) for n in beyond)):
        made = _sample(task, rows, length, seed)
        _check_batch(task, made, rows, length)
        for prompt, target in _rows(task, made):
            _check_instance(task, prompt, target, length)
    _check_randomness(task, batch, top, seed)
    for length in beyond:
        _check_randomness(task, batch, length, seed)
    _check_chance(task, top, seed)
    _check_missing_lengths(task)
    _check_example(task, _sample(task, 1, offered[-1], seed))


def _check_description(task: Task) -> None:
    for attribute, kind in (("name", str), ("summary", str), ("paper", str), ("example", str)):
        value = getattr(task, attribute, None)
        assert isinstance(value, kind), f"{type(task).__name__}.{attribute} is missing"
        assert value, f"{type(task).__name__}.{attribute} is empty"
    whole = type(task.version) is int and task.version >= 1
    assert whole, f"{task.name}: version must be a whole number from 1 on, was {task.version!r}"
    chance = getattr(task, "chance", None)
    assert isinstance(chance, float), f"{task.name}: chance {chance!r} is not a float"
    assert 0 < chance < 1, f"{task.name}: chance {chance} is not between 0 and 1"
    symbols = task.vocab.symbols
    assert len(set(symbols)) == len(symbols), f"{task.name}: a symbol is in the vocab twice"


def _check_batch(task: Task, made: Batch, batch: int, length: int) -> None:
    """Type, shape, range and padding of both tensors."""
    where = f"{task.name}, length {length}"
    for side, tokens, limit in zip(
        ("prompt", "target"), (made.prompt, made.target), task.max_tokens(length), strict=True
    ):
        assert tokens.dtype == torch.int64, f"{where}: {side} is {tokens.dtype}, not int64"
        assert tokens.dim() == 2, f"{where}: {side} has shape {tuple(tokens.shape)}, not two axes"
        assert len(tokens) == batch, f"{where}: {side} has {len(tokens)} rows for batch {batch}"
        assert tokens.shape[1] <= limit, (
            f"{where}: {side} is {tokens.shape[1]} tokens wide, max_tokens says {limit}"
        )
        inside = (tokens >= 0) & (tokens <= task.vocab.pad)
        assert inside.all(), (
            f"{where}: {side} has the id {int(tokens[~inside][0])}; symbols are "
            f"0..{task.vocab.pad - 1} and pad is {task.vocab.pad} (EOS is added by the track)"
        )
    is_token = made.prompt != task.vocab.pad
    assert (is_token[:, 1:] >= is_token[:, :-1]).all(), f"{where}: pad right of a prompt token"
    assert is_token[:, -1:].all(), f"{where}: a prompt does not end at the right edge"
    is_token = made.target != task.vocab.pad
    assert (is_token[:, 1:] <= is_token[:, :-1]).all(), f"{where}: pad left of a target token"
    assert is_token[:, :1].all(), f"{where}: a target has no token at the left edge"
    counted = task.counted(made.target)
    assert counted.dtype == torch.bool, f"{where}: counted gives {counted.dtype}, not bool"
    assert counted.shape == made.target.shape, (
        f"{where}: counted has shape {tuple(counted.shape)}, targets {tuple(made.target.shape)}"
    )
    assert not (counted & ~is_token).any(), f"{where}: counted holds padding"
    assert counted.any(1).all(), f"{where}: no token of a target is counted"


def _check_instance(
    task: Task, prompt: list[int], target: list[int], length: int, source: str = "sample"
) -> None:
    """The length of one unpadded instance, and its answer; `source` says where it comes from."""
    text = task.vocab.decode(prompt)
    measured = task.measure(list(prompt))
    fits = 1 <= measured <= length if task.aligned else measured == length
    assert fits, f"{task.name}: measure says {measured} for a {source} of length {length}: {text!r}"
    solved = task.solve(list(prompt))
    assert solved == target, (
        f"{task.name}: {source} and solve disagree on {text!r} (length {length}):\n"
        f"  {source + ':':<8} {task.vocab.decode(target)!r} {target}\n"
        f"  solve:   {task.vocab.decode(solved)!r} {solved}"
    )


def _check_chance(task: Task, length: int, seed: int) -> None:
    """Between the best guess at the hardest place of an answer and the best at every place.

    Below the first by a quarter or so where values are not quite uniform and `chance` is 1/K.
    """
    target = _sample(task, 2000, length, seed).target
    counts = torch.stack([(target == i).sum(0) for i in range(task.vocab.pad)])  # (symbols, Q)
    best, there = counts.amax(0), counts.sum(0)
    low = min(float((best / there)[there > 200].min()), float(counts.sum(1).max() / there.sum()))
    high = float(best.sum() / there.sum())
    for known, share in task.best_constant:
        got = best_constant(task, known, 2000, seed)
        assert abs(got - share) < 0.03, (
            f"{task.name}: best_constant has {share} at length {known}, expected {got:.3f}"
        )
    assert 0.7 * low <= task.chance <= 1.1 * high + 0.01, (
        f"{task.name}: chance {task.chance} is wrong: at length {length} the best guess that "
        f"ignores the prompt gets {low:.2f} of the tokens at the hardest place of the answer and "
        f"{high:.2f} at all places together; chance lies between the two"
    )


def _check_randomness(task: Task, batch: int, length: int, seed: int) -> None:
    """The generator alone decides."""
    where, state = f"{task.name}, length {length}", torch.get_rng_state()
    first = _sample(task, batch, length, seed)
    kept = torch.equal(state, torch.get_rng_state())
    torch.rand(3)  # moves the global generator
    again, other = _sample(task, batch, length, seed), _sample(task, batch, length, seed + 1)
    assert _same(first, again), f"{where}: two samples under seed {seed} differ"
    assert kept, f"{where}: sample draws from torch's generator too: use the one it is given"
    assert not _same(first, other), f"{where}: seeds {seed} and {seed + 1} give the same batch"
    assert (first.prompt != first.prompt[:1]).any(), f"{where}: all instances of a batch are one"


def _check_missing_lengths(task: Task) -> None:
    """A length that `lengths` leaves out is refused by `sample`, with a TaskError."""
    top = (task.max_length or 100) + 1
    missing = [n for n in range(-1, top + 1) if not task.lengths(n, n)]
    for length in missing:
        try:
            _sample(task, 2, length, seed=0)
        except TaskError:
            continue
        except Exception as error:
            raise AssertionError(
                f"{task.name}: sample of length {length}, which `lengths` leaves out, raised "
                f"{type(error).__name__} ({error}); call self.check_length(length) first"
            ) from error
        raise AssertionError(
            f"{task.name}: sample made length {length}, which `lengths` leaves out; call "
            "self.check_length(length) first"
        )


def _check_example(task: Task, made: Batch) -> None:
    """The example is an instance in text form: its answer follows the prompts' last symbol."""
    asks = int(made.prompt[0, -1])
    try:
        ids = task.vocab.encode(task.example).tolist()
    except TaskError as error:
        raise AssertionError(f"{task.name}: the example {task.example!r}: {error}") from error
    symbol = task.vocab.symbols[asks]
    assert asks in ids, f"{task.name}: the example has no {symbol!r}, with which prompts end"
    split = ids.index(asks) + 1
    prompt, target = ids[:split], ids[split:]
    _check_instance(task, prompt, target, task.measure(list(prompt)), "example")
    decoded = task.vocab.decode(prompt + target)
    assert decoded == task.example, (
        f"{task.name}: the example {task.example!r} comes back from the vocab as {decoded!r}"
    )


def _sample(task: Task, batch: int, length: int, seed: int) -> Batch:
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    assert isinstance(made, Batch), (
        f"{task.name}: sample must return a Batch(prompt=..., target=...), returned a "
        f"{type(made).__name__}"
    )
    return made


def _rows(task: Task, made: Batch) -> list[tuple[list[int], list[int]]]:
    """The instances of a batch without their padding."""
    return [(_bare(task, p), _bare(task, t)) for p, t in zip(made.prompt, made.target, strict=True)]


def _bare(task: Task, row: Tensor) -> list[int]:
    return [token for token in row.tolist() if token != task.vocab.pad]


def _same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.prompt, other.prompt) and torch.equal(one.target, other.target)
