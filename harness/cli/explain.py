"""`pezoo explain`: the theory of positional relation functions, applied to a task."""

from collections.abc import Iterator
from contextlib import suppress
from inspect import signature
from textwrap import fill, indent

import click
import torch
from tabulate import tabulate
from torch import Tensor

from harness import tasks
from harness.tasks.base import Task, TaskError
from harness.theory.characterise import Violation, obstacle, violation
from harness.theory.mapping import complexity, conflict, shared
from harness.theory.representation import Computation, named, operators
from pezoo.base import PositionError, Shape
from pezoo.prf import PRFError, prf_of
from pezoo.registry import entries, make, names

Verdict = tuple[str, str]  # does the PRF characterise the task, does it recover it
TRAINED, TESTED = 5, 10  # lengths
SMALL = 4  # digits 0 .. 3 in the examined instances
ROWS = 400  # examined instances of a length
LEAST = 20  # shared beginnings that a verdict needs
MOST = 400_000  # table rows per length in the search for the complexity
TERMS = (
    "A positional relation function (PRF) phi(i, j) gives a query i and a key j a value, such as "
    "their distance; phi(i, j, n) also reads the length n. Theorems, definitions and examples are "
    "those of Chen et al. 2026, who call the length the scale. What training learns is another "
    "matter."
)


@click.command()
@click.argument("task")
def command(task: str) -> None:
    """Print which encodings suffice for a task by their positions alone, and why.

    After Chen et al. 2026, for training on lengths 1 to 5 and tests up to 10.

    pezoo explain "copy(aligned=10)"
    """

    made = tasks.make(task)
    click.echo(f"{task}: {made.summary}. For example {made.example:.100}")
    try:
        _explain(made)
    except Exception as error:
        if type(made).__module__.startswith(f"{tasks.__name__}."):
            raise
        raise click.ClickException(
            f"the computation of {task} fails ({type(error).__name__}: {error}): "
            f"pezoo check {task} says what is wrong"
        ) from error


def _explain(made: Task) -> None:
    verdicts = verdicts_of(made)
    click.echo(_wrapped(short(verdicts) + variant(made) * (not verdicts)))
    if not verdicts:
        return
    click.echo(f"\n{_wrapped(TERMS)}")
    for title, text in (
        ("Does one function serve all lengths? (canonical, Definition 5)", canonical(made)),
        ("How many operators does it take? (complexity)", size_of_computation(made)),
        ("Which keys does a step need? (Definition 6)", prf(made)),
        ("Which encodings have such a PRF?", encodings(verdicts)),
    ):
        click.echo(f"\n{title}\n{indent(_wrapped(text), '  ')}")


def _wrapped(text: str) -> str:
    """Wrap at 80 columns; a table's rows are not longer."""
    return "\n".join(fill(line, 78, drop_whitespace=len(line) > 78) for line in text.splitlines())


def canonical(task: Task) -> str:
    """Say whether one computation serves all lengths, or give two instances that contradict it."""
    if sign := _moving_sign(task):
        return (
            f"not decided: instances are compared without their signs, and the place of {sign} "
            "tells the length here; a format that pads instances to one length fixes it"
        )
    examples = [*_examples(task, range(1, TRAINED + 1), signs=False)]
    found = conflict(examples)
    if found is None:
        alike = shared(examples)
        if alike is not None and alike < LEAST:
            return f"not decided: only {alike} instances begin like one of another length"
        return (
            "yes, on the examined instances: each token of the answer is the same function of the "
            "tokens before it at all lengths."
        )
    prefix = _text(task, found.prefix)
    return (
        f"no: after {prefix}, an instance of length {found.one} continues with "
        f"{_text(task, (found.writes,))}, one of length {found.other} with "
        f"{_text(task, (found.other_writes,))} (Example 7; signs such as = are left out). So no "
        "phi(i, j) suffices at all lengths (Theorem 2); phi(i, j, n) may, or a format that pads "
        "instances to one length."
    )


def _moving_sign(task: Task) -> str | None:
    """Return a sign between operands whose index differs between lengths."""
    places: dict[str, set[int]] = {}
    for n in task.lengths(1, TRAINED):
        draws = torch.Generator().manual_seed(n)
        for place, token in enumerate(task.sample(draws, 1, n).prompt[0, :-1].tolist()):
            if not (sign := _text(task, (token,))).isalnum():
                places.setdefault(sign, set()).add(place)
    return next((sign for sign, own in places.items() if len(own) > 1), None)


def size_of_computation(task: Task) -> str:
    """Bound the number of unit operators: from below by search, from above as declared."""
    declared = _computations(task)
    most = max(len(s.parents) for c in declared.values() for s in c.steps)
    least = "at least 1"
    for top in task.lengths(1, 3):
        examples = list(_examples(task, range(1, top + 1), signs=False, bits=True))
        places = max((x.shape[1] + y.shape[1] for _, x, y in examples), default=0)
        if not examples or sum(places**most * len(x) * y.shape[1] for _, x, y in examples) > MOST:
            break
        if found := complexity(examples, most):
            least = (
                f"at least {found} up to length {top}, by search on instances of 0 and 1, without "
                f"signs, for operators of {'one input' if most == 1 else f'up to {most} inputs'}"
            )
    counts = [len(operators({k: declared[k] for k in declared if k <= n})) for n in declared]
    used = ", ".join(sorted(map(named, operators(declared))))
    grown = counts[min(TRAINED, len(counts)) - 1] < counts[-1]
    limit = (
        f"The number grows beyond length {TRAINED}: no encoding helps (Theorem 1)."
        if grown
        else f"The number does not grow beyond length {TRAINED}: Theorem 1 sets no limit."
    )
    return (
        f"{least}\nat most {counts[-1]} up to length {max(declared)}, as declared: {used}\n{limit}"
    )


def prf(task: Task) -> str:
    """Say whether the PRF that the task declares characterises its computation."""
    lines = []
    for words, hint in (("phi(i, j)", False), ("phi(i, j, n)", True)):
        try:
            found = _violation(task, hint)
            lines.append(f"{words}: {found or 'tells them apart, as declared'}")
        except TaskError as error:
            lines.append(f"{words}: none. {error}")
    return "\n".join(lines)


def verdicts_of(task: Task) -> dict[Verdict | None, list[str]]:
    """Return the encodings by verdict; {} if the task declares no computation."""
    if not _declares(task):
        return {}
    alike: dict[Verdict | None, list[str]] = {}
    known: dict[bytes, Verdict] = {}  # by PRF
    for name in names():
        try:
            alike.setdefault(_verdict(task, name, known), []).append(name)
        except BaseException as error:
            if entries()[name].plugin is None:
                raise
            click.echo(f"left out: plug-in {name}: {type(error).__name__}: {error}", err=True)
    return alike


def short(verdicts: dict[Verdict | None, list[str]]) -> str:
    """Return a sentence on the encodings that suffice, by these verdicts."""
    if not verdicts:
        return "No theorem applies, because the task declares no computation."
    enough, learned = (", ".join(verdicts.get((word, word), ())) for word in ("yes", "learned"))
    found = f"Encodings that suffice by their relation of positions alone: {enough or 'none'}."
    return f"{found} With a learned one: {learned}." if learned else found


def variant(task: Task) -> str:
    """Name the task with one option switched, if that declares a computation; else ""."""
    for name, option in signature(type(task)).parameters.items():
        if isinstance(option.default, bool):
            value = not getattr(task, name, option.default)
            other = type(task)(**{name: value})
            if _declares(other):
                return f' See: pezoo explain "{task.text(**{name: value})}".'
    return ""


def encodings(verdicts: dict[Verdict | None, list[str]]) -> str:
    """Tabulate the encodings that define a PRF: does it characterise, does it recover?"""
    left = ", ".join(verdicts.get(None, ()))
    head = (
        f"characterises: at lengths up to {TESTED}, keys with equal values have equal roles "
        "(consistency), and only keys that a step needs have a value other than 0 (distinctness). "
        f"recovers: all answers follow from instances up to length {TRAINED} and the values that "
        "their steps read (Theorem 3). Sufficient, not necessary: a model may also use content, "
        "depth and the causal mask.\n"
    )
    table = tabulate(
        [(", ".join(own), *verdict) for verdict, own in verdicts.items() if verdict],
        ["encodings", "characterises", "recovers"],
        maxcolwidths=[24, 17, 32],
    )
    return f"{head}{table}\n\nNo PRF is declared by: {left}"


def _verdict(task: Task, name: str, verdicts: dict[bytes, Verdict]) -> Verdict | None:
    """Return the columns of one encoding; None if it does not define a PRF."""
    scales = task.lengths(1, TESTED)
    encoding = make(name, Shape(16, 2, 8, 1, _size(task, scales[-1])))
    try:
        found = {n: prf_of(encoding, _size(task, n), scale=n, task_prf=task.prf) for n in scales}
    except (TaskError, PositionError, PRFError) as error:
        return "no", str(error).partition(":")[0]
    known = {n: p for n, p in found.items() if p is not None}
    if len(known) < len(found):
        return None
    if any(p.is_floating_point() for p in known.values()):
        with suppress(TaskError):
            if encoding.needs_scale or _violation(task, hint=False) is None:
                return "learned", "learned"
        return "no", "no phi(i, j) does"
    key = b"".join(p.numpy().tobytes() for p in known.values())
    if key not in verdicts:
        breach = violation(_computations(task), known.__getitem__)
        words = f"no ({breach.condition})" if breach else "yes"
        verdicts[key] = words, _recovered(task, known)
    return verdicts[key]


def _recovered(task: Task, prf: dict[int, Tensor]) -> str:
    """Say whether Algorithm 1 leads from the training lengths to the others."""
    if max(prf) <= TRAINED:
        return f"no length beyond {TRAINED}"

    needed = {n: _declared(task, n, hint=True) > 0 for n in prf if n <= TRAINED}
    shown = _examples(task, range(1, TRAINED + 1), signs=True)
    tested = _examples(task, range(TRAINED + 1, TESTED + 1), signs=True, rows=20)
    found = obstacle(prf, needed, shown, tested)
    return "yes" if found is None else f"no: {found}"


def _declares(task: Task) -> bool:
    """Return whether the task declares a computation."""
    lengths = task.lengths(1, TESTED)
    return bool(lengths) and task.computation(lengths[0]) is not None


def _computations(task: Task) -> dict[int, Computation]:
    return {n: c for n in task.lengths(1, TESTED) if (c := task.computation(n))}


def _violation(task: Task, hint: bool) -> Violation | None:
    """Check the declared PRF, with or without the scale. Errors: TaskError without one."""
    return violation(_computations(task), lambda n: _declared(task, n, hint=hint))


def _declared(task: Task, n: int, *, hint: bool) -> Tensor:
    index = torch.arange(_size(task, n))
    return task.prf(index[:, None], index[None], torch.tensor(n) if hint else None)


def _size(task: Task, n: int) -> int:
    """Return the number of tokens of prompt and answer at length n."""
    return sum(task.max_tokens(n))


def _examples(
    task: Task, scales: range, *, signs: bool, bits: bool = False, rows: int = ROWS
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield instances (n, prompts, answers) with small digits, prompts with or without signs.

    `bits`: digits 0 and 1 alone. Instances of a task that declares no computation may differ in
    length: they come one by one, as the task draws them.
    """

    letters = torch.tensor([s.isalnum() or signs for s in task.vocab.symbols] + [False, False])
    for n in (n for n in scales if task.lengths(n, n)):
        made = task.sample(torch.Generator().manual_seed(n), 4 * rows, n)
        if task.computation(n) is None:
            for x, y in zip(made.prompt[:rows], made.target[:rows], strict=True):
                yield n, x[letters[x]][None], y[y != task.vocab.pad][None]
            continue
        digit = torch.tensor([s.isdigit() for s in (*task.vocab.symbols, "", "")])
        most = 2 if bits else SMALL
        small = torch.where(digit[made.prompt], made.prompt % most, made.prompt)
        chosen = {tuple(row): None for row in small.tolist()}  # each once, in order
        found = [(row, a) for row in [*chosen][:rows] if (a := _answer(task, list(row)))]
        if found:
            x, y = (torch.tensor(side) for side in zip(*found, strict=True))
            yield n, x[:, letters[x[0]]], y


def _answer(task: Task, prompt: list[int]) -> list[int] | None:
    try:
        return task.solve(prompt)
    except ZeroDivisionError:
        return None


def _text(task: Task, ids: tuple[int, ...]) -> str:
    return task.vocab.decode(ids) or "nothing"
