"""Conformance check for tasks, including those of other packages.

    check_task(MyTask())

raises AssertionError with the first fault.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb

import torch
from torch import Tensor

from experiment.protocol import protocol_names, read_protocol
from harness.tasks.base import Batch, Task, TaskError, Vocab
from harness.theory.representation import Computation
from leaderboard.stats.overview import between

BATCH = 64  # instances of each of the usual lengths
USUAL = (1, 2, 3, 5, 8, 13)  # lengths
FAR, FEW = 100, 4  # the longest of the lengths beyond, and instances of each
SHORT = 10  # below it much of an answer may be format
MOST_TOKENS = 4000  # of an instance that a protocol tests in practice


def check_task(task: Task, *, lengths: Sequence[int] = USUAL) -> None:
    """Sample a task at `lengths` and compare with the contract of `Task` and with its solver.

    Lengths without instances are skipped; if none of the usual ones has any, the first two that do
    are taken. A few instances are checked at lengths up to FAR.
    Errors: AssertionError says what is wrong, where, and with which instance.
    """
    try:
        _check(task, lengths)
    except AssertionError:
        raise
    except (Exception, SystemExit) as error:
        file = inspect.getfile(type(task))
        own = [f for f in extract_tb(error.__traceback__) if f.filename == file]
        place = f", at {Path(file).name}:{own[-1].lineno} in {own[-1].name}" if own else ""
        raise AssertionError(f"{task.name}: {type(error).__name__}: {error}{place}") from error


def _check(task: Task, lengths: Sequence[int]) -> None:
    _check_description(task)
    offered = [n for n in lengths if task.lengths(n, n)]
    if lengths is USUAL:
        offered = offered or task.lengths(1, FAR)[:2]
    assert offered, f"{task.name}: none of the lengths {list(lengths)} has an instance"
    top = max(offered)
    further = [n for n in range(top + 1, FAR + 1) if task.lengths(n, n)]
    beyond = [*dict.fromkeys((*further[:: len(further) // 4 + 1], *further[-1:]))]
    for length, batch in (*((n, BATCH) for n in offered), *((n, FEW) for n in beyond)):
        made = _sample(task, batch, length)
        _check_batch(task, made, batch, length)
        computation = task.computation(length)
        assert computation == task.computation(length), (
            f"{task.name}: computation({length}) gives other operators at every call: define them "
            "outside it"
        )
        rows = zip(made.prompt, made.target, strict=True) if task.determined else ()
        for prompt, target in rows:
            pair = _unpadded(task, prompt), _unpadded(task, target)
            _check_instance(task, *pair, length)
            if computation:
                _check_computation(task, computation, *pair)
        _check_slots(task, made)
    for length in (*offered, *beyond):
        _check_randomness(task, length, many=length >= top)
    _check_chance(task, top)
    if task.text() == task.name:  # best_constant is that of the default options
        _check_baseline(task)
    _check_missing_lengths(task)
    if task.determined:
        _check_example(task, _sample(task, 1, offered[-1]))


def _check_description(task: Task) -> None:
    for attribute in ("name", "summary", "paper", "example"):
        value = getattr(task, attribute, None)
        where = f"{type(task).__name__}.{attribute}"
        assert isinstance(value, str), f"{where} is missing"
        assert value, f"{where} is empty"
    whole = type(task.version) is int and task.version >= 1
    assert whole, f"{task.name}: version must be a whole number from 1 on, was {task.version!r}"
    chance = getattr(task, "chance", None)
    assert isinstance(chance, float), f"{task.name}: chance {chance!r} is not a float"
    assert 0 < chance < 1, f"{task.name}: chance {chance} is not between 0 and 1"
    vocab = getattr(task, "vocab", None)
    assert isinstance(vocab, Vocab), (
        f"{task.name}: vocab must be a Vocab of symbols, such as Vocab(tuple('0123456789=')); was "
        f"{vocab!r}"
    )
    symbols = vocab.symbols
    assert len(set(symbols)) == len(symbols), f"{task.name}: a symbol is in the vocab twice"


def _check_batch(task: Task, made: Batch, batch: int, length: int) -> None:
    where = f"{task.name}, length {length}"
    prompts, targets = task.max_tokens(length)
    _check_tokens(f"{where}: prompt", made.prompt, batch, prompts, task.vocab.pad)
    _check_tokens(f"{where}: target", made.target, batch, targets, task.vocab.pad)
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
    assert not (counted & ~is_token).any(), f"{where}: counted includes padding"
    assert counted.any(1).all(), f"{where}: no token of a target is counted"


def _check_tokens(side: str, tokens: Tensor, batch: int, limit: int, pad: int) -> None:
    """Check type, shape and range of prompts or targets."""
    assert tokens.dtype == torch.int64, f"{side} is {tokens.dtype}, not int64"
    assert tokens.dim() == 2, f"{side} has shape {tuple(tokens.shape)}, not two axes"
    assert len(tokens) == batch, f"{side} has {len(tokens)} rows for batch {batch}"
    width = tokens.shape[1]
    assert width <= limit, f"{side} is {width} tokens wide, max_tokens says {limit}"
    inside = (tokens >= 0) & (tokens <= pad)
    assert inside.all(), (
        f"{side} has the id {int(tokens[~inside][0])}; symbols are 0..{pad - 1} and pad is {pad} "
        "(the decoder appends EOS)"
    )


def _check_instance(
    task: Task, prompt: list[int], target: list[int], length: int, source: str = "sample"
) -> None:
    """Check the length and the answer of one unpadded instance from a sample or the example."""
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


def _check_computation(
    task: Task, computation: Computation, prompt: list[int], target: list[int]
) -> None:
    made = computation.run(prompt)
    assert made == target, (
        f"{task.name}: computation gives another answer to {task.vocab.decode(prompt)!r}: expected "
        f"{task.vocab.decode(target)!r}, got {task.vocab.decode(made)!r}"
    )


def _check_chance(task: Task, length: int) -> None:
    """Check `chance` against constant answers to 2,000 instances or more.

    `chance` lies between the accuracy of the best constant at the hardest place of the answer and
    that at all places; up to a quarter lower where it is 1/K and values are not quite uniform.
    """
    count = min(max(2000, int(200 / task.chance)), 50_000)  # else the most frequent one is luck
    target = _sample(task, count, length).target
    target = target.where(~task.given(target), task.vocab.pad)
    counts = _counts(target, target != task.vocab.pad)
    best, there = counts.amax(0), counts.sum(0)
    low = min(float((best / there)[there > 200].min()), float(counts.sum(1).max() / there.sum()))
    high = float(best.sum() / there.sum())
    assert 0.7 * low <= task.chance <= 1.1 * high + 0.01, (
        f"{task.name}: chance {task.chance} is wrong, expected {0.7 * low:.2f} to "
        f"{1.1 * high + 0.01:.2f}: at length {length} the best constant answer gets {low:.2f} of "
        f"the tokens at the hardest place and {high:.2f} at all places"
    )


def _check_baseline(task: Task) -> None:
    """Check `best_constant`, and at test lengths that no constant answer does much better.

    Up to forty samples find the lengths that many decide.
    """
    known, found = dict(task.best_constant), {}
    for length, share in known.items():
        got = best_constant(task, length, 4000)
        assert abs(got - share) < 0.03, (
            f"{task.name}: best_constant has {share} at length {length}, expected {got:.3f}"
        )
    tested = _test_lengths(task)
    said = {length: between(known, length) if known else task.chance for length in tested}
    for length in tested:
        tokens = sum(task.max_tokens(length))
        found[length] = best_constant(task, length, max(10, min(40, 20_000 // tokens)))
        if found[length] > said[length] + 0.1:
            samples = min(2000, max(200, 100_000 // tokens))
            found[length] = best_constant(task, length, samples)
    for length, share in found.items():
        some = sorted({*tested[:: len(tested) // 3 + 1], length})
        assert share < said[length] + 0.15, (
            f"{task.name}: {'best_constant' if known else 'chance'} says {said[length]:.2f} at "
            f"length {length}, where the best constant answer gets {share:.2f} of the tokens; for "
            f"example best_constant = {(*((n, round(found[n], 2)) for n in some),)}"
        )


def _test_lengths(task: Task) -> list[int]:
    """Return lengths beyond training at which protocols test the task, about twelve of each."""
    found: set[int] = set()
    for protocol in (read_protocol(name) for name in protocol_names()):
        _, train, test = protocol.settings(task.text())
        if protocol.track != "text":
            least = max(train.lengths[1] + 1, SHORT)
            own = [n for n in test.lengths if n >= least and task.lengths(n, n)]
            found |= {*own[:: len(own) // 13 + 1], *own[-1:]}
    return sorted(n for n in found if sum(task.max_tokens(n)) <= MOST_TOKENS)


def best_constant(task: Task, length: int, samples: int = 10_000) -> float:
    """Estimate the token accuracy of the best constant at each place of the answer.

    Half of the samples choose it, the others score it. Only tokens of `task.counted` count, as in
    Ruoss et al. (2023). It exceeds `chance` where the tokens at a place are not uniform.
    Errors: TaskError for a length without instances.

    >>> from harness.tasks import make
    >>> make("bucket_sort").chance, round(best_constant(make("bucket_sort"), 60), 2)
    (0.2, 0.82)
    """
    target = task.sample(torch.Generator().manual_seed(0), samples, length).target  # (B, Q)
    counted, half = task.counted(target), samples // 2
    best = _counts(target[:half], counted[:half]).argmax(0)
    return float(((target == best) & counted)[half:].sum() / counted[half:].sum())


def _counts(target: Tensor, counted: Tensor) -> Tensor:
    """Count each token at each place: target (B, Q), counted (B, Q) bool -> (K, Q)."""
    places, most = target.shape[1], int(target.max()) + 1
    cells = target * places + torch.arange(places)
    return cells[counted].bincount(minlength=most * places).view(most, places)


def _check_randomness(task: Task, length: int, many: bool) -> None:
    """Check that samples depend on the generator alone, and differ where `many` are to be had."""
    where, state = f"{task.name}, length {length}", torch.get_rng_state()
    first = _sample(task, BATCH, length)
    kept = torch.equal(state, torch.get_rng_state())
    torch.rand(3)  # moves the global generator
    again = _sample(task, BATCH, length)
    assert _same(first, again), f"{where}: two samples under seed 0 differ"
    assert kept, f"{where}: sample uses torch's global generator, not the one it receives"
    if not many:
        return
    other = _sample(task, BATCH, length, seed=1)
    assert not _same(first, other), f"{where}: seeds 0 and 1 give the same batch"
    assert (first.prompt != first.prompt[:1]).any(), f"{where}: all instances of a batch are equal"


def _check_slots(task: Task, made: Batch) -> None:
    """Check that slots are those of a sample alone, and do not depend on later tokens."""
    prompt, target = (_unpadded(task, side[0]) for side in (made.prompt, made.target))
    ids, pad = torch.tensor([[*prompt, *target, task.vocab.eos]]), torch.tensor([[task.vocab.pad]])
    found, size = task.slots(ids), ids.shape[1]
    if found is None:
        return
    where = f"{task.name}: slots of {task.vocab.decode(ids[0])!r}"
    fine = found.dtype == torch.int64 and found.shape == ids.shape and bool((found >= 0).all())
    assert fine, f"{where}: expected int64 (B, S), 0 or more, got {found}"
    assert not task.slots(pad).any(), f"{task.name}: padding has a slot; 0 is expected"
    for change, same in {
        "later tokens": torch.cat([task.slots(ids[:, :n])[:, -1:] for n in range(1, size + 1)], 1),
        "padding": task.slots(torch.cat([pad, ids, pad], 1))[:, 1:-1],
        "another sample before": task.slots(torch.cat([ids, ids], 1))[:, size:],
    }.items():
        assert torch.equal(same, found), f"{where} change with {change}"


def _check_missing_lengths(task: Task) -> None:
    """Check that `sample` raises TaskError for lengths that `lengths` leaves out."""
    top = (task.max_length or 100) + 1
    for length in range(-1, top + 1):
        if task.lengths(length, length):
            continue
        raised: Exception | None = None
        try:
            _sample(task, 2, length)
        except Exception as error:
            raised = error
        assert isinstance(raised, TaskError), (
            f"{task.name}: expected TaskError from sample of length {length}, which `lengths` "
            f"leaves out, got {raised!r}; call self.check_length(length) first"
        )


def _check_example(task: Task, made: Batch) -> None:
    """Check that the example is the text of an instance."""
    last = int(made.prompt[0, -1])  # the symbol that ends every prompt
    try:
        ids = task.vocab.encode(task.example).tolist()
    except TaskError as error:
        raise AssertionError(f"{task.name}: the example {task.example!r}: {error}") from error
    symbol = task.vocab.symbols[last]
    assert last in ids, f"{task.name}: the example lacks {symbol!r}, which ends prompts"
    split = ids.index(last) + 1
    prompt, target = ids[:split], ids[split:]
    _check_instance(task, prompt, target, task.measure(list(prompt)), "example")
    decoded = task.vocab.decode(prompt + target)
    assert decoded == task.example, (
        f"{task.name}: the example {task.example!r} is decoded as {decoded!r}"
    )


def _sample(task: Task, batch: int, length: int, seed: int = 0) -> Batch:
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    assert isinstance(made, Batch), (
        f"{task.name}: sample must return a Batch(prompt=..., target=...), returned a "
        f"{type(made).__name__}"
    )
    return made


def _unpadded(task: Task, row: Tensor) -> list[int]:
    return [token for token in row.tolist() if token != task.vocab.pad]


def _same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.prompt, other.prompt) and torch.equal(one.target, other.target)
