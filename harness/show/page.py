"""The page of one run: its settings, its scores, its pictures."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader
from torch import Tensor

from experiment.config import RunConfig
from harness.model.transformer import Transformer
from harness.show import plots
from harness.show.activations import Activations, activations
from harness.show.examples import Example, answer, lengths, sample
from harness.show.figures import Figure, figures
from harness.show.lengths import length_panels
from harness.show.pca import pca_figure
from harness.tasks.base import Task
from pezoo.base import PositionError


@dataclass(frozen=True)
class Run:
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
    run: Run, prompts: Sequence[Tensor] = (), mode: str | None = None, longer: int | None = None
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


def page(run: Run, inspection: Inspection, mode: str | None = None) -> str:
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
    """Draw the learning curves: exact match on the training lengths, and that step's loss."""
    return [
        (label, plots.curve(label, [(p["step"], p[key]) for p in points], label, top))
        for key, label, top in (("exact", "exact match", 1.0), ("loss", "batch loss", None))
        if points
    ]


def labelled(example: Example) -> list[tuple[str, str, int | None]]:
    """Return each token, its class, and every tenth number if the pictures number the tokens."""
    classes = ["prompt"] * example.prompt
    classes += ["wrong" if wrong else "right" for wrong in example.wrong[example.prompt :]]
    every = 10 if len(example.reads) > plots.MOST_WORDS else len(example.tokens)
    numbers = [i if i and i % every == 0 else None for i in range(len(example.tokens))]
    return list(zip(example.tokens, classes, numbers, strict=True))
