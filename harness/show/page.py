"""The page of one run: its settings, its scores, its pictures."""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jinja2 import Environment, PackageLoader
from torch import Tensor

from experiment.config import RunConfig
from harness.data.batches import length_choice
from harness.data.seeds import generator
from harness.model.transformer import Transformer
from harness.show import plots
from harness.show.examples import Example, answer, lengths, sample
from harness.show.figures import Activations, Figure, activations, figures
from harness.show.pca import pca_figure
from harness.tasks.base import Batch, Task
from harness.training.evaluate import examples
from pezoo.base import PositionError

DRAWN = 200  # instances of a length with too many to list


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its record, and its model after and before training."""

    record: dict[str, Any]
    config: RunConfig
    task: Task
    trained: Transformer
    untrained: Transformer


@dataclass(frozen=True)
class Inspection:
    """The content of a page: examples, prompts that cannot be represented, figures."""

    examples: list[Example]
    errors: list[str]
    figures: list[Figure]


def inspect(
    run: FinishedRun,
    prompts: Sequence[Tensor] = (),
    mode: str | None = None,
    longer: int | None = None,
) -> Inspection:
    """Run the models on prompts (P,), by default on two of the task.

    `longer` is the length beyond training. Errors: TaskError if the task has no such length.
    """
    tested = lengths(run.task, run.config, longer)
    prompts = prompts or [sample(run.task, n) for n in tested]
    trained: list[Activations] = []
    errors = []
    for number, prompt in enumerate(prompts, 1):
        try:
            example = answer(run.trained, run.task, run.config, prompt, number, mode)
            trained.append(activations(run.trained, example, mode))
        except PositionError as error:
            errors.append(f"{run.task.vocab.decode(prompt)}: {error}")
    if not trained:
        return Inspection([], errors, [])
    untrained = activations(run.untrained, trained[0].example, mode)
    found = figures(trained, untrained)
    try:
        if principal := pca_figure(run.trained, run.task, tested, mode):
            found.append(principal)
    except PositionError as error:
        errors.append(f"no principal components at length {tested[-1]}: {error}")
    if run.config.eval.window:
        no_window = " Computed in one pass, without the window of the tests."
        found = [
            replace(one, caption=one.caption + no_window)
            if one.title.startswith(("Attention", "Activations"))
            else one
            for one in found
        ]
    return Inspection([one.example for one in trained], errors, found)


def page(run: FinishedRun, inspection: Inspection, mode: str | None = None) -> str:
    """Render one HTML file that loads nothing else."""
    environment = Environment(
        loader=PackageLoader("harness", "show"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"anchor": anchor, "data": data, "labelled": labelled}
    return environment.get_template("page.html").render(
        run=run,
        record=run.record,
        config=run.config,
        mode=mode,
        scores=scores(run.record),
        curves=curves(run.record["learning"]),
        lengths=length_panels(run.task, run.config),
        inspection=inspection,
    )


def files(inspection: Inspection) -> dict[str, str]:
    """Return every panel as an SVG file, by name: figure, section, panel."""
    return {
        f"{anchor(figure.title)}-{number}-{anchor(name)}.svg": svg
        for figure in inspection.figures
        for number, section in enumerate(figure.sections, 1)
        for name, svg in section.panels
    }


def data(svg: str) -> str:
    """Return an SVG as the address of an image."""
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def anchor(title: str) -> str:
    """Turn a title into letters, digits and dashes; signs of numbers become words.

    >>> anchor("Gates, step -2")
    'gates-step-minus-2'
    """
    title = re.sub(r"\+(?=\d)", "plus ", re.sub(r"(?<!\w)-(?=\d)", "minus ", title))
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def scores(record: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the scores by length of each checkpoint, then of each checkpoint in each mode."""
    found = list(record["scores"].items())
    for mode, checkpoints in record.get("modes", {}).items():
        found += [(f"{name}, {mode}", rows) for name, rows in checkpoints.items()]
    return found


def curves(points: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Draw the learning curves: exact match on the training lengths, and that step's loss.

    A curve without numbers, such as exact match of text, is left out.
    """
    return [
        (label, plots.curve(label, [(p["step"], p[key]) for p in points], label, top))
        for key, label, top in (("exact", "exact match", 1.0), ("loss", "batch loss", None))
        if any(p[key] is not None for p in points)
    ]


def labelled(example: Example) -> list[tuple[str, str, int | None]]:
    """Return each token, its class, and every tenth number if the pictures number the tokens."""
    classes = ["prompt"] * example.prompt
    classes += ["wrong" if wrong else "right" for wrong in example.wrong[example.prompt :]]
    every = 10 if len(example.reads) > plots.MOST_WORDS else len(example.tokens)
    numbers = [i if i and i % every == 0 else None for i in range(len(example.tokens))]
    return list(zip(example.tokens, classes, numbers, strict=True))


def length_panels(task: Task, config: RunConfig) -> list[tuple[str, str]]:
    """Draw histograms of the tokens of the sequence, its answer (with EOS) and its prompt.

    Training: after the curriculum, as the run draws lengths. Test: every length beyond training, or
    every test length if none is. Shares of answers are logarithmic: long answers are rare.
    """
    choice = length_choice(task, config.train, config.train.steps)
    weights = [1.0] * len(choice.lengths) if choice.weights is None else choice.weights.tolist()
    seen = [(_batch(task, n), weight) for n, weight in zip(choice.lengths, weights, strict=True)]
    tested = [n for length in config.eval.lengths for n in task.lengths(length, length)]
    unseen = [n for n in tested if n > config.train.lengths[1]]
    test = [(one := examples(task, config, n), len(one.prompt)) for n in unseen or tested]
    causal = int(config.track == "decoder")
    both = {"training": _shares(task, seen, causal), "test": _shares(task, test, causal)}
    panels = []
    for i, part in enumerate(("whole sequence", "answer", "prompt")):
        shares = {when: found[i] for when, found in both.items()}
        name, label = f"lengths of the {part}", f"tokens of the {part}"
        panels.append((name, plots.histograms(name, shares, label, log=part == "answer")))
    return panels


def _shares(task: Task, batches: Sequence[tuple[Batch, float]], causal: int) -> list[list[float]]:
    """Return the share of sequences, answers and prompts of 0, 1, ... tokens.

    Each batch has a weight. A decoder writes EOS; an encoder does not read the last of the prompt.
    """
    found: list[tuple[Tensor, ...]] = []
    for batch, weight in batches:
        prompt = (batch.prompt != task.vocab.pad).sum(1) - (1 - causal)
        answer = (batch.target != task.vocab.pad).sum(1) + causal
        each = torch.full((len(prompt),), weight / len(prompt), dtype=torch.float64)
        found.append((prompt + answer, answer, prompt, each))
    *tokens, mass = map(torch.cat, zip(*found, strict=True))
    return [torch.bincount(one, mass / mass.sum()).tolist() for one in tokens]


def _batch(task: Task, length: int) -> Batch:
    draws = generator("lengths", task.name, task.version, length)
    return task.instances(length) or task.sample(draws, DRAWN, length)
