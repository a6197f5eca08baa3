"""Records as one tidy pandas DataFrame, for your own analyses."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from leaderboard.record.read import RECORDS, load
from leaderboard.record.schema import Checkpoint, Cost, Env, Record, Score
from leaderboard.stats.intervals import wilson
from pezoo.spec import bare, choice

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    ("string", "run protocol task settings name encoding spec checkpoint"),
    ("Int64", "encoding_version task_version seed train_length steps"),
    ("string", "mode"),
    ("Int64", "length"),
    ("boolean", "seen"),
    ("string", "status"),
    ("float64", "exact wilson_low wilson_high"),
    ("Int64", "correct count"),
    ("float64", "token bits gain gain_error"),
    ("string", "method note"),
    ("float64", "chance"),
    ("Int64", "parameters encoding_parameters"),
    ("float64", "train_seconds cpu_seconds eval_seconds steps_per_second peak_memory_mb"),
    ("string", "commit device cpu"),
    ("boolean", "tuning_run"),
    ("datetime64[ns, UTC]", "finished"),
)
COLUMNS = {name: dtype for dtype, names in _COLUMNS for name in names.split()}
_PARTS = {
    part: (names, attrgetter(*names))
    for part in (Cost, Env, Score)
    if (names := [field.name for field in fields(part) if field.name in COLUMNS])
}
OF_LENGTH = slice(*map([*COLUMNS].index, ("mode", "chance")))  # those that differ within a run


def frame(*paths: Path | str, checkpoint: str = "last", modes: bool = False) -> pd.DataFrame:
    """Return the scores of the records in `paths`, one row per run and test length.

    `paths` are files, folders of records and folders of runs; by default the committed records.
    `checkpoint` is "last", "best" (the one chosen on validation data), or one of those that
    select on what they report (`leaderboard.record.schema.Scores`). `modes` adds the rows of the
    other evaluation modes, which use the same weights: do not average them with the others.
    Missing texts, integers and booleans are `pd.NA`, missing numbers NaN.

    >>> scores = frame().query("protocol == 'quick' and task == 'copy'")
    >>> float(scores.groupby(["encoding", "length"]).exact.mean()["prism", 10])
    1.0

    Identity (compare only runs with equal protocol, task and settings):

    - run: its id, 16 hexadecimal digits
    - protocol, task, task_version; settings: a hash of all settings that the runs of a table share
    - encoding: as typed; name: without options; spec: with every option; encoding_version
    - mode: the evaluation mode, "" for the one used in training; checkpoint; seed
    - train_length: the longest length in training; steps: training steps

    Results, shares from 0 to 1:

    - length, in the task's own unit; seen: whether it lies within the training lengths
    - status: only "ok" has numbers; else "cannot represent", "no instance", or "failed", where
      a run that failed has one row without a length; note: why
    - exact: share of whole answers that are right; correct of count answers
    - wilson_low, wilson_high: 95 % interval of exact over test examples, not over seeds
    - bits: of text, per byte of the targets; gain: how many fewer than with the training length
      alone; gain_error: its standard error
    - token: share of tokens that are right; chance: the token accuracy of chance
    - method: "teacher-forced" or "decoded"

    Cost and environment:

    - parameters: of the model; encoding_parameters: those of the encoding among them
    - train_seconds, eval_seconds: by the clock; cpu_seconds: of training, over all threads;
      steps_per_second: of training by the clock; peak_memory_mb: megabytes
    - commit, device, cpu: where it ran; the record has versions, kernels, and hashes of its data
    - tuning_run: the run served to choose settings; no table has it
    - finished: time, UTC

    Errors: ValueError for another checkpoint, FileNotFoundError for a path that does not exist.
    Warns of every invalid record, and leaves it out.
    """
    import pandas as pd  # half a second

    choice("checkpoint", checkpoint, get_args(Checkpoint))
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(f"no such file or folder: {path}")
    records, problems = load(paths or [RECORDS])
    for problem in problems:
        warnings.warn(f"left out: {problem}", stacklevel=2)
    rows = [row for record in records for row in rows_of(record, checkpoint, modes)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def rows_of(
    record: Record, checkpoint: str, modes: bool, run: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one record; a missing key is a missing value.

    Every row has the values of `run`, by default all of `run_values`.
    """
    run = (run_values(record) if run is None else run) | {"checkpoint": checkpoint}
    if record.status == "failed":
        yield run | {"mode": "", "status": "failed", "note": record.reason}
        return
    for mode, scores in record.by_mode.items() if modes else [("", record.scores)]:
        for score in getattr(scores, checkpoint):
            row = run | {"mode": mode} | _values(score)
            if score.status == "ok":
                row["wilson_low"], row["wilson_high"] = wilson(score.correct, score.count)
            yield row


def _values(part: Any) -> dict[str, Any]:
    """Return those fields of a part that are columns."""
    names, values = _PARTS[type(part)]
    return dict(zip(names, values(part), strict=True))


def run_values(record: Record) -> dict[str, Any]:
    """Return the values that all rows of a run share; `DataFrame` drops other keys."""
    settings = record.config
    return {
        **_values(record.cost),
        **_values(record.env),
        "run": record.run,
        "protocol": record.protocol,
        "task": record.task,
        "task_version": settings.task_version,
        "settings": record.shared_hash,
        "name": bare(record.encoding),
        "encoding": record.encoding,
        "spec": settings.spec,
        "encoding_version": settings.encoding_version,
        "seed": record.seed,
        "train_length": record.train_length,
        "steps": record.last_step,
        "chance": record.chance,
        "tuning_run": record.for_tuning,
        "finished": record.finished.astimezone(UTC),
    }
