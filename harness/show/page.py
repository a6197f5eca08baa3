"""The page of one run: its facts, its scores, its pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from torch import Tensor

from harness.model.decoder import Decoder
from harness.settings.protocol import RunConfig
from harness.show import svg
from harness.show.axes import numbered
from harness.show.examples import Example, answer, lengths, sample
from harness.show.figures import Figure, figures
from harness.show.watch import View, view
from harness.tasks.base import Task
from pezoo.base import PositionError


@dataclass(frozen=True)
class Run:
    """A finished run: its record, and its model after and before training."""

    record: dict[str, Any]
    config: RunConfig
    task: Task
    trained: Decoder
    untrained: Decoder


@dataclass(frozen=True)
class Shown:
    """What a page shows: examples, prompts that could not be represented, figures."""

    examples: list[Example]
    problems: list[str]
    figures: list[Figure]


def look(run: Run, prompts: Sequence[Tensor] = (), mode: str | None = None) -> Shown:
    """Watch a run on prompts (P,) each, or on two that it is given."""
    prompts = prompts or [sample(run.task, n) for n in lengths(run.task, run.config)]
    trained: list[View] = []
    problems = []
    for number, prompt in enumerate(prompts, 1):
        try:
            example = answer(run.trained, run.task, run.config, prompt, number, mode)
            trained.append(view(run.trained, example, mode))
        except PositionError as error:
            problems.append(f"{run.task.vocab.decode(prompt)}: {error}")
    if not trained:
        return Shown([], problems, [])
    untrained = [view(run.untrained, trained[0].example, mode)]
    return Shown([one.example for one in trained], problems, figures(trained, untrained))


def page(run: Run, shown: Shown, mode: str | None = None) -> str:
    """The HTML, which needs nothing else."""
    environment = Environment(
        loader=PackageLoader("harness", "show"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"anchor": anchor, "svg": Markup}
    return environment.get_template("page.html").render(
        run=run,
        record=run.record,
        facts=facts(run, mode),
        scores=scores(run.record),
        curves=curves(run.record["learning"]),
        shown=shown,
        words=words,
        style=Markup(svg.STYLE),
        light=Markup(svg.LIGHT),
    )


def files(shown: Shown) -> dict[str, str]:
    """Every panel as an SVG file of its own, by name: figure, part, panel."""
    return {
        f"{anchor(figure.title)}-{number}-{anchor(name)}.svg": svg.standalone(drawn)
        for figure in shown.figures
        for number, part in enumerate(figure.parts, 1)
        for group in [*part.panels, *part.folded]
        for name, drawn in group
    }


def anchor(title: str) -> str:
    """A title as an anchor: letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def facts(run: Run, mode: str | None) -> dict[str, str]:
    """What was run, in words."""
    config, record = run.config, run.record
    low, high = config.train.lengths
    model, cost, env = config.model, record["cost"], record["env"]
    return {
        "encoding": config.encoding.replace(",", ", "),
        **({"mode": mode} if mode else {}),
        "task": f"{config.task}, for example {run.task.example}",
        "seed": str(config.seed),
        "protocol": config.protocol,
        "training": f"{config.train.steps} steps of {config.train.batch} sequences, "
        f"lengths {low} to {high}, learning rate {config.train.lr:g}",
        "model": f"{model.layers} layers, {model.heads} heads, width {model.width}; "
        f"{cost['parameters']:,} parameters, {cost['encoding_parameters']:,} of the encoding",
        "time": f"{cost['train_seconds']:.0f} s of training, {cost['eval_seconds']:.0f} s of "
        "evaluation",
        "weights": "the last checkpoint",
        "run": f"{record['run']}, pezoo {env['pezoo']}, torch {env['torch']}",
    }


def scores(record: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Scores per length, all of the same lengths: of each checkpoint, and of each mode."""
    found = [(name, rows) for name, rows in record["scores"].items()]
    for mode, checkpoints in record.get("modes", {}).items():
        found += [(f"{name}, {mode}", rows) for name, rows in checkpoints.items()]
    return found


def curves(points: list[dict[str, Any]]) -> list[Markup]:
    """The learning curve: exact match on the training lengths, and the loss."""
    if not points:
        return []
    exact = [(point["step"], point["exact"]) for point in points]
    loss = [(point["step"], point["loss"]) for point in points]
    high = max(y for _, y in loss) or 1.0
    return [
        Markup(svg.curve("exact match by step", exact, "step", "exact match", 1.0)),
        Markup(svg.curve("loss by step", loss, "step", "loss", high)),
    ]


def words(example: Example) -> list[tuple[str, str, int | None]]:
    """Each token and its class: part of the prompt, right or wrong; and of some the number.

    Every tenth has it, where pictures say tokens by number.
    """
    classes = ["prompt"] * example.prompt
    classes += ["wrong" if bad else "right" for bad in example.wrong[example.prompt :]]
    every = 10 if numbered(len(example.tokens) - 1) else len(example.tokens) + 1
    marks = [i if i and i % every == 0 else None for i in range(len(example.tokens))]
    return list(zip(example.tokens, classes, marks, strict=True))
