"""Read the folder of a paper: its tables and published numbers."""

import csv
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from experiment.config import Settings
from experiment.protocol import base
from leaderboard.record.schema import Checkpoint
from pezoo.spec import Spec, choice, parse, unknown

FOLDER = Path(__file__).parent
SD = "±"  # between a mean and its standard deviation


@dataclass(frozen=True)
class Number:
    """A value in percent or hours, with its standard deviation if known."""

    value: float
    sd: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        >>> Number.parse("67.6±15.3")
        Number(value=67.6, sd=15.3)
        """
        value, there, sd = text.partition(SD)
        return cls(float(value), float(sd) if there else None)

    def text(self, digits: int) -> str:
        """
        >>> Number(67.61, 15.34).text(digits=1)
        '67.6±15.3'
        """
        return f"{self.value:.{digits}f}" + ("" if self.sd is None else f"{SD}{self.sd:.{digits}f}")


Summary = Literal["max", "mean", "all"]


class PaperColumn(Settings):
    """A column of a table, filled by the best of `encodings`.

    `summary` is "max" over learning rates and seeds; "mean", with standard deviation, over the
    seeds of the best learning rate among those with the most seeds; or "all", over all rates and
    seeds. `long` takes runs trained up to the longest test length of the protocol, `checkpoint`
    another checkpoint than the last, and `unaligned` runs on the task without its option `aligned`.
    `times` counts lengths beyond the first and up to the second multiple of the training length.
    """

    name: str
    encodings: tuple[str, ...]
    summary: Summary
    long: bool = False
    checkpoint: Checkpoint = "last"
    unaligned: bool = False
    times: tuple[float, float] | None = None

    def task(self, row: str) -> str:
        """Return the task of this column's runs in a row."""
        if not self.unaligned:
            return row
        spec = parse(row)
        return str(Spec(spec.name, {k: v for k, v in spec.options.items() if k != "aligned"}))


class PaperGain(Settings):
    """The lead of the best of some columns of a table over the best of others, by task."""

    name: str
    table: str
    best: tuple[str, ...]
    over: tuple[str, ...]


class PaperTable(Settings):
    """A table as paper.toml has it, with `digits` after the point.

    `measure` is token accuracy or exact match in percent, averaged over all unseen test lengths;
    "test_token" or "test_exact", the same at the end of the learning curve; "pairs", exact match
    over all pairs of lengths beyond training (test sets "17+n" and so on); or "hours" of training
    by the clock, which are not compared. `digits_ours` are the digits of our numbers, if different.
    `at` gives, by task, the one multiple of the training length that counts. `protocols` are
    those of the paper, unless the file names others. Rows of `gains` are computed from other
    tables: the mean and the most. `groups` is the heading of the rows' groups in a terminal, where
    they are shown if it is given.
    """

    label: str  # "Table 1"
    title: str
    place: str  # in the paper
    measure: Literal["token", "exact", "test_token", "test_exact", "pairs", "hours"]
    digits: int = 1
    digits_ours: int | None = None
    columns: tuple[PaperColumn, ...]
    at: dict[str, float] = Field(default_factory=dict)
    protocols: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    gains: tuple[PaperGain, ...] = ()
    groups: str = ""

    @property
    def along(self) -> bool:
        """True if it needs test scores along training, `eval.curve_lengths`."""
        return self.measure in ("test_token", "test_exact")


class PaperFigure(PaperTable):
    """A figure: a table without published numbers, with pictures.

    `kind` is "curves" of accuracy over test lengths, a picture per task; "time" or "steps", the
    same over training; "seeds", a curve per seed; "tasks", one picture with a curve per task;
    "pairs", a heat map over pairs of lengths; or "sweep", columns named by numbers and one picture
    with a curve per task. `axis` names the numbers, `band` is a share drawn above and below each
    curve. `forms` are the rows under another protocol, by name.
    """

    kind: Literal["curves", "time", "steps", "seeds", "tasks", "pairs", "sweep"]
    axis: str = "test length"
    band: float = 0.0
    tasks: tuple[str, ...]
    forms: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Paper(Settings):
    """The content of paper.toml.

    The first of `protocols` that has records fills the tables. `budget` is the training budget of
    the paper for the caption, `rates` its learning rates. `encodings` are specs that stand for an
    encoding of the tables; the first one is for new runs. In the file, what stands in [tables] or
    [figures] itself is that of all of them that do not say otherwise.
    """

    name: str
    title: str
    authors: str
    year: PositiveInt
    url: str = ""  # where it is known
    protocols: tuple[str, ...]
    budget: str
    rates: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    selection: str = ""  # the remark where a column has another checkpoint than the last
    encodings: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    tables: dict[str, PaperTable] = Field(default_factory=dict)
    figures: dict[str, PaperFigure] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)  # figures that cannot be made, and why

    @model_validator(mode="before")
    @classmethod
    def _columns(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Give parts what they share; a column takes its part's summary, "rope" is one of rope."""
        parts, own = {"tables": "Table", "figures": "Figure"}, {"protocols": raw.get("protocols")}
        return raw | {
            key: _parts(kind, own | raw[key]) for key, kind in parts.items() if key in raw
        }

    def texts(self, encoding: str) -> tuple[str, ...]:
        """Return the specs that stand for an encoding of a table."""
        return self.encodings.get(encoding, (encoding,))

    def table(self, number: str) -> PaperTable:
        """Return a table. Errors: ValueError with the valid numbers."""
        if number not in self.tables:
            if number in self.missing:
                self.figure(number)  # says why
            known = dict.fromkeys((*self.tables, *self.figures))
            raise ValueError(unknown(f"table or figure of {self.name}", number, known))
        return self.tables[number]

    def figure(self, number: str) -> PaperFigure:
        """Return a figure. Errors: ValueError with the valid numbers, or why it is missing."""
        if number in self.missing:
            raise ValueError(f"figure {number} of {self.name} is not there: {self.missing[number]}")
        if number not in self.figures:
            raise ValueError(unknown(f"figure of {self.name}", number, self.figures))
        return self.figures[number]


@dataclass(frozen=True)
class PaperLine:
    """A row of a table: a task and its published numbers, by column."""

    group: str
    task: str
    numbers: dict[str, Number | None]


def names() -> list[str]:
    """Return the names of all papers."""
    return sorted(path.parent.name for path in FOLDER.glob("*/paper.toml"))


def read(name: str) -> Paper:
    """Read a paper by the name of its folder. Errors: ValueError with the nearest name."""
    choice("paper", name, names())
    text = (FOLDER / name / "paper.toml").read_text(encoding="utf-8")
    return Paper.model_validate({"name": name} | tomllib.loads(text))


def lines_of(paper: Paper, part: PaperTable, protocol: str = "") -> list[PaperLine]:
    """Return the rows of a table or figure in the paper's order, with published numbers.

    Errors: ValueError for a file with other columns than paper.toml.
    """
    if isinstance(part, PaperFigure):
        return [PaperLine("", task, {}) for task in part.forms.get(base(protocol), part.tasks)]
    if part.gains:
        return [PaperLine("", gain.name, {}) for gain in part.gains]
    path = FOLDER / paper.name / f"{part.label.replace(' ', '-').lower()}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    expected = ["group", "task", *(column.name for column in part.columns)]
    if header != expected or any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path.name}: expected rows of {', '.join(expected)}")
    numbers = [[Number.parse(text) if text else None for text in row[2:]] for row in rows]
    return [
        PaperLine(row[0], row[1], dict(zip(header[2:], own, strict=True)))
        for row, own in zip(rows, numbers, strict=True)
    ]


def _parts(kind: str, raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    shared = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    found = {}
    for number in (key for key in raw if key not in shared):
        part = shared | raw[number] | {"label": f"{kind} {number}"}
        summary = part.pop("summary", None)
        found[number] = part | {"columns": [_column(one, summary) for one in part["columns"]]}
    return found


def _column(raw: str | dict[str, Any], summary: str | None) -> dict[str, Any]:
    own = {"name": raw} if isinstance(raw, str) else raw
    return {"summary": summary, "encodings": [own["name"]]} | own
