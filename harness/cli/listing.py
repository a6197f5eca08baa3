"""`pezoo list`: describe the encodings, tasks and protocols."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, cleandoc, getdoc, signature
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel

from pezoo.spec import nearest

if TYPE_CHECKING:
    from pezoo.base import Encoding
    from pezoo.spec import Spec

Facts = dict[str, str]  # a name, a summary, and further facts
TRACKS = {
    "decoder": "decoders, which write token by token, scored by whole answers",
    "encoder": "encoders, which see all tokens and answer in one pass, scored by tokens",
    "text": "decoders, which predict every token of a text, scored in bits",
}


class Kind(click.Choice[str]):
    """The kinds of names; for a name in their place, the error says its kind."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            for kind in (one for one in self.choices if value in _names(one)):
                self.fail(f"{value} is one of the {kind}: pezoo list {kind} {value}", param, ctx)
            every = (*self.choices, *(name for kind in self.choices for name in _names(kind)))
            if close := nearest(value, every):
                self.fail(f"{value!r} is not one of {', '.join(self.choices)}{close}", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("what", type=Kind(["encodings", "tasks", "protocols"]))
@click.argument("name", required=False)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--gallery",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with a picture of every encoding.",
)
def command(what: str, name: str | None, form: str, gallery: Path | None) -> None:
    """List encodings, tasks or protocols, or describe the one called NAME.

    NAME is typed as for bench: "randomized:rope", "odds_first(symbols=2)", a protocol's file. A
    plug-in that cannot be loaded is listed with its error.
    """
    if gallery:
        if what != "encodings" or name:
            raise click.UsageError("--gallery shows all encodings: pezoo list encodings --gallery")
        _write_gallery(gallery)
        return
    describe = DESCRIBE[what]
    found = (
        describe(name) if name else [facts for n in _names(what) for facts in _listed(describe, n)]
    )
    if form == "json":
        one = name is not None and len(found) == 1
        click.echo(json.dumps(found[0] if one else found, indent=1, ensure_ascii=False))
    elif name is None:
        _print_all(found)
    else:
        click.echo("\n\n".join("\n".join(_lines(facts)) for facts in found))


def _write_gallery(path: Path) -> None:
    from harness.settings.catalog import read_catalog
    from harness.show.gallery import gallery
    from pezoo.registry import entries

    own = [name for name, entry in entries().items() if entry.plugin is None]
    path.write_text(gallery(own, read_catalog()), encoding="utf-8")
    click.echo(path.resolve().as_uri())


def _listed(describe: Callable[[str], list[Facts]], name: str) -> list[Facts]:
    """Describe one of all names, without what it wraps; a broken one by its error."""
    try:
        return describe(name)[:1]
    except ValueError as error:
        return [{"name": name, "summary": str(error)}]


def encoding(text: str) -> list[Facts]:
    """Describe the outermost encoding of a spec, then what it wraps."""
    from pezoo.registry import check, check_values, check_wraps, entries, parse, second_names

    typed = parse(text)
    spec = check(typed)
    second = typed.name in second_names()
    same = str(spec) if len(str(spec)) < 60 else f"{spec.name} with the options below"
    found = [{"name": str(typed), "summary": f"the same as {same}"}] if second else []
    specs = [spec]
    while specs:
        cls = entries()[specs[0].name].load()
        check_values(specs[0], cls)
        check_wraps(specs[0], cls)
        found.append(_encoding(specs[0], cls))
        specs = [*specs[0].wrapped, *specs[1:]]
    return found


def _encoding(spec: Spec, cls: type[Encoding]) -> Facts:
    from leaderboard.render.prose import cited

    return {
        "name": spec.name,
        "summary": cls.summary,
        "paper": ", ".join((cls.paper, *(one.url for one in cited(cls.paper) if one.url))),
        "reports": cls.reports,
        "reads": cls.reads,
        "wraps": f"{cls.wraps}, unless another follows a colon" if cls.wraps else "",
        "formula": described(cls, "Formula"),
        "options": _options(cls, spec.options),
        "meaning": described(cls, "Options"),
        "source": described(cls, "Paper") or described(cls, "Source"),
        "deviations": described(cls, "Deviation") or described(cls, "Deviations"),
        "file": f"{cls.__module__.replace('.', '/')}.py",
    }


def task(text: str) -> list[Facts]:
    """Describe one task, with its options."""
    from harness import tasks

    name, task = tasks.canonical(text), tasks.make(text)
    cls = type(task)
    own = {key: str(getattr(task, key, "")) for key in ("summary", "family", "paper", "example")}
    facts = {
        "name": name,
        **own,
        "about": _body(cls, own["example"]),
        "chance": f"{task.chance:.2g}" if hasattr(task, "chance") else "",
        "vocabulary": described(cls, "Vocabulary"),
        "options": _options(cls, {}),
        "meaning": described(cls, "Options"),
    }
    return [facts]


def _body(cls: type, example: str) -> str:
    """Return the paragraphs of a docstring without heading, without the first and the example."""
    from leaderboard.render.prose import sections

    _first, *rest = sections(cleandoc(cls.__doc__ or ""))  # not a base class's
    own = [text for head, text in rest if not head]
    return "\n".join(t for t in own if not example or not t.startswith(example[:9]))


def _options(cls: type, typed: Mapping[str, Any]) -> str:
    """Return the options of a class as typed or by default: `max_len=2048, sorted=True`."""
    own = [p for p in signature(cls).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    values = [(p.name, typed.get(p.name, p.default)) for p in own]
    return ", ".join(k if v is Parameter.empty else f"{k}={v}" for k, v in values)


def described(cls: type, head: str) -> str:
    """Return what follows a heading in a docstring: after `Options: `, or below `Options`."""
    from leaderboard.render.prose import sections

    found = [
        re.sub(rf"^{head}\n", "", text)
        for own, text in sections(getdoc(cls) or "")
        if own == head or re.match(rf"{head}( [a-z ]+)?\n ", text)
    ]
    return "\n".join(found)


def protocol(name: str) -> list[Facts]:
    """Describe one protocol, by its name or file."""
    from harness.settings.protocol import load_protocol

    p = load_protocol(name)
    special = (
        f"{n} ({_settings(own.model_dump(exclude_unset=True))})" for n, own in p.tasks.items()
    )
    facts = {
        "name": p.name,
        "summary": p.description,
        "track": TRACKS[p.track],
        "model": _settings(dict(p.model)),
        "train": _settings(dict(p.train)),
        "eval": _settings(dict(p.eval)),
        "seeds": p.seeds,
        "encodings": _specs(p.encodings),
        "tasks": "any" + f", with other settings for {'; '.join(special)}" * bool(p.tasks),
    }
    return [facts]


def _specs(encodings: Mapping[str, Mapping[str, Any]]) -> str:
    from pezoo.spec import Spec

    specs = (str(Spec(name, dict(own))) for name, own in encodings.items())
    return "; ".join(specs).replace(",", ", ")


def _settings(values: Mapping[str, Any], prefix: str = "") -> str:
    """Write settings in a line.

    >>> _settings({"train": {"lr": 0.1, "lengths": [1, 4]}, "sets": [{"name": "a", "max": 2}]})
    'train.lr 0.1; train.lengths 1, 4; sets (name a; max 2)'
    """
    parts = []
    for key, value in values.items():
        if value in (None, ""):
            continue
        if key == "encodings":
            parts.append(_specs(value))
        elif isinstance(value, Mapping):
            parts.append(_settings(value, f"{prefix}{key}."))
        else:
            parts.append(f"{prefix}{key} {_value(value)}")
    return "; ".join(parts)


def _value(value: object) -> str:
    """
    >>> _value((20, 21, 30)), _value((40, 41, 42, 43)), _value([])
    ('20, 21, 30', '40-43', 'none')
    """
    if isinstance(value, Mapping | BaseModel):
        return f"({_settings(dict(value))})"
    if not isinstance(value, list | tuple):
        return str(value)
    first, last = (value[0], value[-1]) if value else (None, None)
    if len(value) > 2 and isinstance(first, int) and [*value] == [*range(first, last + 1)]:
        return f"{first}-{last}"
    return ", ".join(map(_value, value)) or "none"


DESCRIBE = {"encodings": encoding, "tasks": task, "protocols": protocol}


def _names(what: str) -> list[str]:
    from experiment.protocol import protocol_names
    from harness import tasks
    from pezoo.registry import typed_names

    return {"encodings": typed_names, "tasks": tasks.names, "protocols": protocol_names}[what]()


def _print_all(found: Sequence[Facts]) -> None:
    """Print names and summaries in two columns that fit the terminal."""
    width = get_terminal_size((80, 24)).columns
    first = max(len(facts["name"]) for facts in found) + 2
    for facts in found:
        lines = wrap(facts["summary"], max(width - first, 30), break_on_hyphens=False)
        click.echo((facts["name"].ljust(first) + "".join(lines[:1])).rstrip())
        for line in lines[1:]:
            click.echo(" " * first + line)


def _lines(facts: Facts) -> Iterator[str]:
    """Yield the facts as labelled lines that fit the terminal."""
    width = max(get_terminal_size((80, 24)).columns - 12, 30)
    for key, value in facts.items():
        label = f"{key}  "
        for line in _reflowed(value, width):
            yield (label.rjust(12) + line).rstrip()
            label = ""


def _reflowed(text: str, width: int) -> Iterator[str]:
    """Wrap a docstring at another width: paragraphs, and rows of a name, spaces and words.

    >>> list(_reflowed("Two\\nlines\\n  top   the\\n        end", 40))
    ['Two lines', 'top         the end']
    """
    parts: list[list[str]] = []
    for line in text.splitlines():
        row = re.split(r"(?<=\S) {2,}", line.strip(), maxsplit=1)
        if len(row) == 1 and parts and (line.startswith(" ") or len(parts[-1]) == 1):
            parts[-1][-1] += f" {row[0]}"
        else:
            parts.append(row)
    for *name, words in parts:
        indent, line = " " * 12 * len(name), " ".join(words.split())
        head = f"{name[0]:<11} " if name else ""
        yield from wrap(head + line, width, subsequent_indent=indent, break_on_hyphens=False)
