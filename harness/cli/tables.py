"""Tables of `pezoo bench`: results, and the choices of a sweep."""

import json
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from textwrap import fill

import click
from tabulate import tabulate

from experiment.config import RunConfig
from harness import tasks
from harness.settings.catalog import read_catalog
from harness.settings.sweep import Choice
from leaderboard.catalog import Catalog
from leaderboard.escape import markdown_text, shown
from leaderboard.record.schema import Record
from leaderboard.record.tuning import values_text
from leaderboard.render.columns import in_tables, rows_as_csv, rows_as_markdown
from leaderboard.stats.overview import Baseline, baseline, constant
from leaderboard.stats.ranks import verdicts
from leaderboard.stats.rows import BITS, EXACT, NOT_LEARNED, TOKENS, Point, Row, aliases, legend
from leaderboard.stats.tables import Table, tables
from leaderboard.text import (
    medians_text,
    notes_text,
    percent,
    rank_text,
    reach_text,
    score,
    stat_text,
    unlearned_text,
    unseen_text,
)


def print_records(
    records: list[Record],
    form: str,
    configs: Sequence[RunConfig] = (),
    wide: bool = False,
) -> None:
    """Print the records as JSON, or one table per task as text, CSV or Markdown.

    A table names the runs of `configs` without a record. `wide` prints every length and interval
    whatever the terminal's width, and the other measure of encoders and text.
    """
    if form == "json":
        click.echo(json.dumps([record.data() for record in records], indent=1))
        return
    catalog = read_catalog()
    found = tables(records, catalog)
    if form == "csv":
        click.echo(rows_as_csv(row for table in found for row in table.rows), nl=False)
        return
    there = {record.run for record in records}
    missing = [config for config in configs if config.hash not in there]
    for table in found:
        lacks = [f"{c.encoding}, seed {c.seed}" for c in missing if c.task == table.first.task]
        words = [f"PARTIAL: no record yet of {'; '.join(lacks)}"] if lacks else []
        if form == "markdown":
            _print_markdown(table, words)
        else:
            _print_table(table, words, wide, catalog)
    if not records and missing:
        click.echo("no run has a record yet")


def _print_markdown(table: Table, words: Sequence[str]) -> None:
    rows = table.rows
    test, *pairs = map(markdown_text, verdicts(rows))
    own = [*words, *medians_text(rows), *notes_text(rows), *_failed(rows)]
    if (guess := _guess(table)) and guess.unseen is not None:
        own.append(f"baseline, which ignores the prompt: {percent(guess.unseen)} % beyond training")
    lines = [f"- {markdown_text(line)}\n" for line in own]
    title = markdown_text(f"{table.first.task} ({table.named})")
    click.echo(f"### {title}\n\n{rows_as_markdown(rows)}\n")
    click.echo("".join([*lines, "\n" * bool(lines), f"{test}\n"]))
    click.echo("".join(f"- {pair}\n" for pair in pairs), nl=False)


def _guess(table: Table) -> Baseline | None:
    """Return what a constant answer gets in the table's metric; None where that is unknown.

    Of whole answers it is known where they are one token.
    """
    first = table.first
    try:
        task = tasks.make(first.task)
    except ValueError:  # of a plug-in that is not installed
        return None
    lengths = [n for cell in table.rows[0].cells for n in task.lengths(cell.length, cell.length)]
    single = not table.rows[0].in_bits and all(task.max_tokens(n)[1] == 1 for n in lengths)
    if first.chance is None or not (table.of_encoders or single):
        return None
    return constant(table, first.chance, task.best_constant if task.text() == task.name else ())


def _failed(rows: Sequence[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """Return the failed runs with their reasons."""
    return [
        f"{(names or {}).get(row.label, row.label)}, seed {seed} failed: {reason}"
        for row in rows
        for seed, reason in row.failures
    ]


def _print_table(found: Table, lacks: Sequence[str], wide: bool, catalog: Catalog) -> None:
    """Print a table that fits the terminal, and notes below it.

    Where no answer is right, as in short runs, the accuracy of tokens follows.
    """
    rows, width = found.rows, 10_000 if wide else get_terminal_size((120, 24)).columns
    names, guess = aliases(rows), _guess(found)
    place = "wide" if wide else "terminal"
    table, lengths, intervals = _fitting(rows, names, width, place, guess)
    unit = " [95 % interval: t, or Wilson's for one seed]" if intervals else ""
    unit = f"{'' if rows[0].in_bits else ', %'}{unit}"
    title = f"{found.first.task} ({found.named}): mean {rows[0].metric} per length{unit}"
    click.echo(fill(shown(title), width))
    click.echo(table)
    both = rows[0].metric != EXACT
    if (wide and both) or not any(c.main and c.main.mean for row in rows for c in row.cells):
        _print_beside(found, names, lengths, baseline(found, catalog))
    if rows[0].in_bits:
        _print_saved(rows, names, lengths)
    notes = [f"{short} = {label}" for short, label in legend(rows, names)]
    if not wide and (both or not intervals or len(lengths) < len(rows[0].cells)):
        more = f"length, interval and {rows[0].other}" if both else "length and interval"
        notes.append(f"every {more}: --wide, or --format csv")
    if modes := {row.mode for row in rows if row.mode}:
        named = ", ".join(f"({mode})" for mode in sorted(modes))
        notes.append(f"{named}: the same weights run in another way; see pezoo list encodings NAME")
    words = [*unlearned_text(rows, names), *medians_text(rows, names), *verdicts(rows)]
    words += [*notes_text(rows, names), *_below(rows, names, guess)]
    for line in [*notes, *lacks, *words, *_failed(rows, names)]:
        click.echo(fill(shown(line), min(width, 120), subsequent_indent="  "))


def _print_beside(
    found: Table, names: Mapping[str, str], lengths: Sequence[int], guess: Baseline
) -> None:
    """Print the other measure; `guess` is the baseline of tokens."""
    rows = found.rows
    click.echo(f"\n{rows[0].other} per length, %")
    heads = ["encoding", "unseen", *(str(rows[0].cells[at].length) for at in lengths)]
    cells = [
        [names[row.label], percent(row.unseen_beside)]
        + [percent(c.beside) if c.main else _short(c.status) for c in scores]
        for row in rows
        for scores in [[row.cells[at] for at in lengths]]
    ]
    if guess.by_length and rows[0].other == TOKENS:
        shares = (percent(guess.by_length[at]) for at in lengths)
        cells.append(["baseline", percent(guess.unseen), *shares])
    click.echo(_text(heads, cells) + "\n" * (rows[0].metric == EXACT))


def _below(rows: Sequence[Row], names: Mapping[str, str], guess: Baseline | None) -> list[str]:
    """Say what the baseline is, and which encodings do not exceed it beyond training."""
    if guess is None or guess.unseen is None:
        return []
    low = [names[row.label] for row in rows if row.unseen and row.unseen.mean <= guess.unseen]
    not_above = f"; {', '.join(low)} do{'es' * (len(low) == 1)} not exceed it" if low else ""
    return [f"baseline: the best constant answer, which ignores the prompt{not_above}"]


def _print_saved(rows: Sequence[Row], names: Mapping[str, str], lengths: Sequence[int]) -> None:
    """Print the bits that context beyond the training length saves."""
    heads = ["encoding", *(str(rows[0].cells[at].length) for at in lengths)]
    saved = [[names[row.label], *(_saved(row.cells[at]) for at in lengths)] for row in rows]
    click.echo(f"\nbits saved against the same model's last {rows[0].train_length} bytes, ± 95 %")
    click.echo(_text(heads, saved) + "\n")


def _saved(cell: Point) -> str:
    if cell.gain is None:
        return _short(cell.status)
    return f"{cell.gain:+.3f}" + (f" ±{cell.gain_half:.3f}" if cell.gain_half else "")


def _fitting(
    rows: Sequence[Row], names: Mapping[str, str], width: int, place: str, guess: Baseline | None
) -> tuple[str, Sequence[int], bool]:
    """Return the fullest table that fits, its columns of lengths, and whether it has intervals.

    Intervals are dropped first, then lengths except the first unseen one, twice the training length
    and the last, then the columns after the scores. Names are never cut.
    """
    every, row = [*range(len(rows[0].cells))], rows[0]
    unseen = [at for at in every if not row.cells[at].seen]
    twice = [at for at in unseen if row.cells[at].length >= 2 * row.train_length]
    some = [*dict.fromkeys([unseen[0], *twice[:1], unseen[-1]])] if unseen[3:] else unseen
    few = [*every[: len(every) - len(unseen)][-1:], *some]
    tries = [(every, True, True), (every, True, False), (every, False, True), (few, True, True)]
    tries += [(few, False, True), (few, False, False), (some, False, False), ([], False, False)]
    for lengths, intervals, more in tries:
        heads, cells = _columns(rows, names, lengths, intervals, place * more)
        if guess and guess.by_length:
            shares = [guess.unseen, *(guess.by_length[at] for at in lengths)]
            line = ["baseline", "", "", *map(percent, shares)]
            cells.append(line + [""] * (len(heads) - len(line)))
        table = _text(heads, cells)
        if len(table.partition("\n")[0]) <= width:
            break
    return table, lengths, any("[" in cell for line in cells for cell in line[2:])


def _text(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table; the first column is left-aligned."""
    align = ["left", *["right"] * (len(heads) - 1)]
    return tabulate(cells, heads, disable_numparse=True, colalign=align)


def _columns(
    rows: Sequence[Row],
    names: Mapping[str, str],
    lengths: Sequence[int],
    intervals: bool,
    more: str,
) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells; `more`: the place whose columns follow the scores, or ""."""
    others = in_tables(more) if more else []
    heads = ["encoding", "rank", "reach", "unseen"]
    heads += [str(rows[0].cells[at].length) for at in lengths]
    heads += [column.head for column in others]
    cells = []
    for row in rows:
        scores = [row.cells[at] for at in lengths]
        line = [names[row.label], "" if row.aside else rank_text(row), reach_text(row)]
        line.append(_short(unseen_text(row, intervals)))
        line += [
            stat_text(c.main, intervals, row.in_bits) if c.main else _short(c.status)
            for c in scores
        ]
        cells.append([*line, *(_short(column.shown(row)) for column in others)])
    return heads, cells


def _short(words: str) -> str:
    """Return a form of a few letters, which a line below the table explains."""
    return {"cannot represent": "cannot", NOT_LEARNED: "-"}.get(words, words)


def print_choices(choices: Sequence[Choice], aside: bool) -> None:
    """Print the choices of a sweep, the score of every config and the cost; `aside`: on stderr."""
    trials = [trial for choice in choices for trial in choice.trials]
    in_bits = any(trial.bits is not None for trial in trials)
    measure = TOKENS if any(trial.token is not None for trial in trials) else EXACT
    words = BITS if in_bits else f"{measure} in percent"
    title = f"tuning: mean {words} over all test lengths, on the tuning seeds"
    cells = [values_text(trial.values) for trial in choices[0].trials]
    lines = []
    for choice in choices:
        tuning = choice.tuning
        runs = sum(len(trial.runs) for trial in choice.trials)
        failed = [trial.exact is None and bool(trial.runs) for trial in choice.trials]
        scores = [
            "failed" if bad else score(trial.score, in_bits)
            for bad, trial in zip(failed, choice.trials, strict=True)
        ]
        nothing = "every config failed" if choice.complete else "not all runs are done"
        chosen = values_text(tuning["chosen"]) if tuning else f"nothing: {nothing}"
        spent = f"{tuning['cpu_seconds']:.0f}" if tuning else "-"
        lines.append([choice.encoding, choice.task, chosen, *scores, str(runs), spent])
    heads = ["encoding", "task", "chosen", *cells, "runs", "CPU-seconds"]
    table = tabulate(lines, heads, disable_numparse=True)
    if max(map(len, table.splitlines())) > get_terminal_size((120, 24)).columns:
        first, *rest = zip(heads, *lines, strict=True)  # a line per cell, a column per encoding
        table = tabulate(rest, first, disable_numparse=True)
    click.echo(f"{title}\n{table}", err=aside)
