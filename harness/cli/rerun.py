"""Train the run of a record again and compare, which finds what no check of a record can."""

from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import click

from harness.cli.train import train
from harness.engine import Options, make
from leaderboard.record.schema import Record, Score

SAME = ("device", "cpu", "threads", "torch", "attention_ran", "kernels")
CLOSE = 0.05  # of exact match, of text the share of right tokens, averaged over the test lengths


def rerun(record: Record, runs: Path | None) -> Record:
    """Train the run in `runs`, or in a folder that is deleted, with the record's threads.

    Errors: UsageError if it leaves no record, as one that another process is training.
    """
    engine = make("local", Options(jobs=1, threads=record.env.threads))
    with TemporaryDirectory() as folder:
        made, _ = train([record.config], runs or Path(folder), engine, fresh=False)
    if not made:
        raise click.UsageError(f"run {record.run} left no record; the reason is above")
    return made[0]


def compare(given: Record, made: Record) -> tuple[list[str], bool]:
    """Return what agrees and what differs, in lines, and whether the results agree.

    On the same kind of processor, with the same versions, threads and kernels, a run repeats bit
    for bit. Elsewhere sums are rounded in another order, which training amplifies: data must be
    equal, and exact match, of text token accuracy, close on average.
    """
    if given.status != made.status:
        return [f"status: {given.status} in the record, {made.status} now"], False
    changed = [f for f in SAME if getattr(given.env, f) != getattr(made.env, f)]
    lines = [f"{f}: {getattr(given.env, f)} in the record, {getattr(made.env, f)} now"
             for f in changed]  # fmt: skip
    equal = True
    for name, one, two in (
        ("training data", given.data_hash, made.data_hash),
        ("initial weights", given.backbone_hash, made.backbone_hash),
        ("learning curve", _curve(given), _curve(made)),
        ("best step", given.best_step, made.best_step),
        ("scores", _scores(given), _scores(made)),
    ):
        equal &= one == two or one is None
        lines.append(
            f"{name}: {'equal' if one == two else 'not known' if one is None else 'differ'}"
        )
    if equal:
        return [*lines, "the results agree bit for bit"], True
    gap = abs(_mean(given) - _mean(made))
    name = "token accuracy" if given.config.track == "text" else "exact match"
    lines.append(f"mean {name}: {_mean(given):.4f} in the record, {_mean(made):.4f} now")
    close = bool(changed) and given.data_hash in (None, made.data_hash) and gap <= CLOSE
    where = "another machine or version" if changed else "the same kind of machine and versions"
    return [
        *lines,
        f"the means are {'within' if close else 'not within'} {CLOSE}, on {where}: "
        f"the results {'agree' if close else 'differ'}",
    ], close


def _curve(record: Record) -> list[tuple[object, ...]]:
    return [(p.step, p.loss, p.exact, p.test_token, p.test_exact) for p in record.learning]


def _scores(record: Record) -> list[Score]:
    return [score for _, _, scores in record.tested() for score in scores]


def _mean(record: Record) -> float:
    text = record.config.track == "text"
    return fmean((score.token if text else score.exact) or 0.0 for score in record.scores.last)
