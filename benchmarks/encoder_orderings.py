"""Orderings of Ruoss et al. 2023 that the records of ruoss2023-mini show, as Markdown.

    python benchmarks/encoder_orderings.py

Ours are means over seeds of the token accuracy over unseen lengths, the paper's those of its
Table 4, the means over ten seeds of the best rate. An ordering shows where the means are at least
`APART` points apart, the better one is as far above the baseline, and every seed has the same sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pandas as pd
import torch

import leaderboard
from harness.tasks import make
from harness.tasks.base import Task
from harness.tasks.testing import best_constant

KINDS = ("sinusoidal", "relative", "alibi", "rope", "learned")
PAPER = Path(leaderboard.__file__).parent / "papers" / "ruoss2023" / "table-4.csv"
APART, LEARNED = 5.0, 90.0


def scores() -> pd.DataFrame:
    """The newest settings of each task alone, and the first options of each encoding."""
    found = leaderboard.frame().query("protocol == 'ruoss2023-mini' and not tuning_run")
    newest = found.groupby("task").finished.transform("max") == found.finished
    settings = found[newest].groupby("task").settings.first()
    found = found[found.settings == found.task.map(settings)].sort_values("finished")
    return found[found.spec == found.groupby(["task", "encoding"]).spec.transform("first")]


def runs(found: pd.DataFrame) -> pd.DataFrame:
    """A row per run: `unseen` and `trained`, token accuracy in percent beyond and at the longest
    trained length."""
    keys = ["task", "encoding", "seed"]
    unseen = found[~found.seen].groupby(keys).token.mean()
    trained = found[found.seen].groupby(keys).token.mean()
    return 100 * pd.DataFrame({"unseen": unseen, "trained": trained})


def paper() -> pd.DataFrame:
    """The paper's means by task and encoding."""
    table = pd.read_csv(PAPER).drop(columns="group").set_index("task")
    return table.map(lambda text: float(text.partition("±")[0]))


def baselines(found: pd.DataFrame) -> dict[str, float]:
    """Return the better of two baselines over the unseen lengths, in percent: the best constant at
    every place of the answer, and the prompt's most frequent token everywhere."""
    lengths = found[~found.seen].groupby("task").length.unique()
    return {
        task: 100 * max(fmean(one(make(task), n) for n in own) for one in (best, most_frequent))
        for task, own in lengths.items()
    }


def best(task: Task, length: int) -> float:
    return best_constant(task, int(length))


def most_frequent(task: Task, length: int) -> float:
    batch = task.sample(torch.Generator().manual_seed(0), 10_000, int(length))
    answer, counted = batch.prompt[:, :-1].mode(1).values, task.counted(batch.target)
    return float(((batch.target == answer[:, None]) & counted).sum() / counted.sum())


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def short(columns: Iterable[str]) -> list[str]:
    return [column.replace("randomized:", "r:") for column in columns]


def accuracies(
    found: pd.DataFrame, bars: dict[str, float], tasks: list[str], columns: list[str]
) -> Iterator[str]:
    """The mean and, behind it, the lowest and the highest seed; bold where training is learned."""

    def cell(task: str, encoding: str) -> str:
        if (task, encoding) not in found.index.droplevel("seed"):
            return "-"
        own = found.loc[task, encoding]
        text = f"{own.unseen.mean():.1f} ({own.unseen.min():.0f}-{own.unseen.max():.0f})"
        return f"**{text}**" if own.trained.mean() >= LEARNED else text

    rows = (
        [task, f"{bars[task]:.1f}", *(cell(task, encoding) for encoding in columns)]
        for task in tasks
    )
    yield from markdown(["task", "baseline", *short(columns)], rows)


def differences(
    found: pd.DataFrame, bars: dict[str, float], published: pd.DataFrame, tasks: list[str]
) -> Iterator[str]:
    """Random positions minus plain ones by kind: ours, the paper's, and whether that shows."""

    def cell(task: str, kind: str) -> str:
        drawn, plain = (found.loc[task, one].unseen for one in (f"randomized:{kind}", kind))
        theirs = published.loc[task, f"randomized:{kind}"] - published.loc[task, kind]
        shown = verdict(drawn, plain, bars[task], theirs)
        return f"{(drawn - plain).mean():+.1f} / {theirs:+.1f} {shown}".strip()

    rows = ([task, *(cell(task, kind) for kind in KINDS)] for task in tasks)
    yield from markdown(["task", *KINDS], rows)


def verdict(one: pd.Series, other: pd.Series, bar: float, theirs: float) -> str:
    """`=` for the paper's sign, `x` for the other, nothing where either shows nothing."""
    gain = one - other
    clear = abs(gain.mean()) >= APART and bool((gain * gain.mean() > 0).all())
    if not clear or abs(theirs) < APART or max(one.mean(), other.mean()) < bar + APART:
        return ""
    return "=" if gain.mean() * theirs > 0 else "x"


def pairs(
    found: pd.DataFrame, bars: dict[str, float], published: pd.DataFrame, tasks: list[str]
) -> Iterator[str]:
    """Of the pairs that are twice `APART` apart in the paper, how many show, task by task."""
    total: Counter[str] = Counter()
    rows = []
    for task in tasks:
        count: Counter[str] = Counter()
        for one, other in combinations(published.columns, 2):
            theirs = published.loc[task, one] - published.loc[task, other]
            if abs(theirs) >= 2 * APART:
                ours = found.loc[task, one].unseen, found.loc[task, other].unseen
                count[verdict(*ours, bars[task], theirs)] += 1
        total += count
        rows.append([task, *(str(count[sign]) for sign in ("=", "x", ""))])
    rows.append(["all", *(str(total[sign]) for sign in ("=", "x", ""))])
    yield from markdown(["task", "as in the paper", "the other way", "neither"], rows)


def main() -> None:
    given, published = scores(), paper()
    found, bars = runs(given), baselines(given)
    tasks = [task if task in found.index else f"{task}(symbols=2)" for task in published.index]
    published = published.set_axis(tasks)
    columns = [*published.columns, "geometric"]
    for part in (
        accuracies(found, bars, tasks, columns),
        differences(found, bars, published, tasks),
        pairs(found, bars, published, tasks),
    ):
        print(*part, "", sep="\n")


if __name__ == "__main__":
    main()
