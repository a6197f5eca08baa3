"""Plain data for the scripts of the site: tables, rows and runs."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import islice
from statistics import fmean
from types import NoneType
from typing import Any

from experiment.files import slug
from leaderboard.catalog import Catalog, ClassDoc
from leaderboard.charts.styles import SETTINGS, after_the_curve, needs_log, styles
from leaderboard.escape import script_json
from leaderboard.record.schema import Record
from leaderboard.render import columns
from leaderboard.render.overviews import disclosure, overview_of
from leaderboard.render.prose import cited
from leaderboard.stats.costs import by_encoding, training_costs
from leaderboard.stats.overview import baseline, chosen
from leaderboard.stats.ranks import comparisons
from leaderboard.stats.rows import NOT_LEARNED, PASS, Row, aliases, legend
from leaderboard.stats.tables import EARLIER, PROTOCOL, Table, tables
from leaderboard.text import shortened
from pezoo.spec import bare

_MODE = re.compile(r'Mode "(\w+)":\s+([^,.;]+)')  # in the description of an encoding


def script(name: str, value: Any) -> str:
    """Return a script that sets window.NAME."""
    return f"window.{name} = {_parsed(value)};\n"


def _parsed(value: Any) -> str:
    """Return JavaScript that parses JSON: there "__proto__" is a plain key."""
    text = script_json(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"JSON.parse('{text}')"  # the JSON is full of double quotes


def site_data(found: Sequence[Table], catalog: Catalog) -> dict[str, Any]:
    """Return all data except the runs; numbers have six digits."""
    views = list(_views(found, catalog))
    rows = [row for _, table in views for row in table.rows]
    encodings = {bare(row.encoding) for row in rows} | set(catalog.encodings)
    tasks = {table.first.task for table in found} | set(catalog.tasks)
    names = aliases(rows)
    runs = Counter(table.base for table in found for _ in table.records)
    decoding = by_encoding()
    data = {
        "columns": [{"key": one.name, "title": one.head} for one in columns.in_tables("page")],
        "tables": [_table(view, table, catalog) for view, table in views],
        "overviews": list(_overviews(views, catalog)),
        "styles": {label: astuple(style) for label, style in styles(rows).items()},
        "names": names,
        "legend": legend(rows, names),
        "baselines": SETTINGS["baselines"],
        "reference": SETTINGS["reference"],
        "decoding": next((one.where for one in decoding.values()), ""),
        "encodings": {
            name: _page("encoding", name, next(iter(catalog.parts(name)), None))
            | _encoding(catalog.parts(name))
            | {"decode": decoding[name].decode if name in decoding else None}
            for name in encodings
        },
        "tasks": {name: _page("task", name, catalog.tasks.get(bare(name))) for name in tasks},
        "protocols": {
            name: {"runs": count} | {kind: f"data/{slug(name)}.{kind}.js" for kind in KINDS}
            for name, count in runs.most_common()
        },
    }
    return _short(data)


# Fields of rows and points that only the files for download have.
IN_FILES = {
    "protocol", "task", "settings", "track", "step", "train_length", "trained", "notes", "failed",
    "unseen_mean", "unseen_low", "unseen_high", "rank_first", "rank_last", "typed_options",
    "chosen_setting", "settings_tried", "metric", "seeds_apart", "steps_per_second", "length",
    "seen", "correct", "count", "ends", "method", "n", "saved", "cpu_seconds_least",
    "cpu_seconds_most", "median", "encoding", "gain_error",
}  # fmt: skip
KINDS = "tables", "devices", "pairs"  # of the scripts of a protocol
SHOWN = 5  # digits of their numbers: pages show at most four
UNSEEN = {"decoder": ("exact", ""), "encoder": ("token", ""), "text": ("bits", "bits")}
INDEX = "base", "policy", "tuning", "name", "version", "device", "devices", "task", "metric"


def scripts(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield data.js, which pages load first, and scripts of every protocol, which they load when
    they show it: its tables and overviews; tables of single devices; tests of pairs of rows."""
    index = [
        {name: table[name] for name in INDEX}
        | {"bares": sorted({r["bare"] for r in table["rows"]})}
        for table in data["tables"]
    ]
    yield "data.js", script("DATA", data | {"tables": index, "overviews": []})
    for base, facts in data["protocols"].items():
        tables, overviews = (
            [one for one in data[name] if one["base"] == base] for name in ("tables", "overviews")
        )
        main = [one for one in tables if not one["device"]]
        parts: tuple[dict[str, Any], ...] = (
            {"tables": [_light(one | {"pairs": None}) for one in main], "overviews": overviews},
            {"tables": [_light(one) for one in tables if one["device"]]},
            {"pairs": [one["pairs"] for one in main]},
        )
        for kind, part in zip(KINDS, parts, strict=True):
            own = _parsed(_short(part | {"base": base, "kind": kind}, SHOWN))
            yield facts[kind], f"(window.PARTS ??= []).push({own});\n"


def files_of(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tables for download, without what only pages show."""
    drop = "shown", "wrong"
    return [
        table | {"rows": [{k: v for k, v in row.items() if k not in drop} for row in table["rows"]]}
        for table in tables
    ]


def _light(value: Any, inside: bool = False) -> Any:
    """Leave out what only files have, from rows and all within them."""
    if isinstance(value, dict):
        return {
            key: _light(own, inside or key == "rows") if type(own) in (dict, list) else own
            for key, own in value.items()
            if not (inside and key in IN_FILES)
        }
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_light(own, inside) for own in value]
    return value


def runs_data(records: Iterable[Record]) -> list[list[Any]]:
    """Return one line per run, in the order of all-runs.js."""
    lines = [
        [
            r.run, r.protocol, r.task, r.encoding, r.seed, _outcome(r), *unseen_of(r), r.env.device,
            r.cost.steps_per_second, r.cost.train_seconds,
            r.provenance.finished[:16].replace("T", " "), bare(r.encoding),
        ]
        for r in records
    ]  # fmt: skip
    return _short(lines)


def _outcome(record: Record) -> str:
    """Return how a run ended: one that misses PASS at its training length has not learned."""
    seen = [score for score in record.scores.last if score.seen and score.exact is not None]
    if not seen or record.config.track == "text":
        return record.status
    last = seen[-1].token if record.config.track == "encoder" else seen[-1].exact
    return NOT_LEARNED if (last or 0.0) < PASS - 1e-9 else record.status


def unseen_of(record: Record) -> tuple[float | None, str]:
    """Return the mean of a run over the unseen lengths and "bits" if it is in bits; or None and
    the words in its place."""
    if record.status == "failed":
        return None, "failed"
    unseen = [s for s in record.scores.last if not s.seen and s.status != "no instance"]
    if any(score.status != "ok" for score in unseen):
        return None, "cannot represent"
    if not unseen:
        return None, "no unseen length"
    field, unit = UNSEEN[record.config.track]
    return fmean(getattr(score, field) or 0.0 for score in unseen), unit


_PLAIN = {NoneType, bool, int, str}


def _short(value: Any, digits: int = 6) -> Any:
    """Convert to plain data, with numbers of that many digits."""
    kind = type(value)
    if kind is float:
        return float(f"{value:.{digits}g}")
    if kind in (list, tuple):
        return [one if type(one) in _PLAIN else _short(one, digits) for one in value]
    own = value if kind is dict else vars(value)
    return {key: one if type(one) in _PLAIN else _short(one, digits) for key, one in own.items()}


View = dict[str, Any]  # what tells a table of the site from others


def _views(found: Sequence[Table], catalog: Catalog) -> Iterator[tuple[View, Table]]:
    """Yield the tables, and one more per device for runs on several devices."""
    seen = Counter[tuple[str, str, str]]()
    for table in found:
        tuning = {PROTOCOL: PROTOCOL, EARLIER: EARLIER}.get(table.policy, table.first.protocol)
        if table.policy == EARLIER or table.version:
            tuning += f".{slug(table.version or table.settings_name)}"
        key = table.base, table.first.task, tuning
        seen[key] += 1
        shared = {
            "id": table.slug,
            "base": table.base,
            "policy": table.policy,
            "tuning": f"{tuning}.{seen[key]}" if seen[key] > 1 else tuning,
            "name": table.settings_name,
            "version": table.version,
            "about": table.about,
        }
        devices = sorted({record.env.device for record in table.records})
        yield shared | {"device": "", "devices": devices}, table
        for device in devices if len(devices) > 1 else ():
            for part in tables([r for r in table.records if r.env.device == device], catalog):
                yield shared | {"device": device, "devices": [device]}, part


def _overviews(views: Sequence[tuple[View, Table]], catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Yield the overview of every protocol, way of choosing settings, and device."""
    groups: dict[tuple[str, str], list[tuple[View, Table]]] = defaultdict(list)
    same = "heads", "disclosure", "untested", "baseline"
    for view, table in views:
        groups[view["base"], view["tuning"]].append((view, table))
    for (base, tuning), group in groups.items():
        devices = sorted({device for view, _ in group for device in view["devices"]})
        for device in ["", *devices] if len(devices) > 1 else [""]:
            some = [table for view, table in group if _is_of(view, device)]
            own, names = (
                overview_of(some, {}, catalog),
                ("learned", "rank", "ranks", "reciprocal_rank"),
            )
            yield {
                "base": base,
                "tuning": tuning,
                "device": device,
                "tasks": [table.first.task for table in own.tables],
                "lines": [
                    {
                        "label": line.label,
                        "mean": line.unseen and line.unseen.mean,
                        "low": line.unseen and line.unseen.low,
                        "high": line.unseen and line.unseen.high,
                    }
                    | {name: getattr(line, name) for name in names}
                    for line in own.all_lines
                ],
            } | {name: getattr(own, name) for name in same}


def _is_of(view: View, device: str) -> bool:
    """Return whether a table shows the runs of a device; "" means all devices."""
    if not device:
        return not view["device"]
    return view["device"] == device or (not view["device"] and view["devices"] == [device])


def _table(view: View, table: Table, catalog: Catalog) -> dict[str, Any]:
    first, cells = table.first, table.rows[0].cells
    known = catalog.protocols.get(table.base)
    seeds, marks = known.seeds if known else 0, chosen([table], catalog)
    by_run = {record.run: record for record in table.records}
    found, ratios = baseline(table, catalog), training_costs(table, SETTINGS["reference"])
    return view | {
        "protocol": first.protocol,
        "task": first.task,
        "track": first.config.track,
        "train": first.train_length,
        "metric": table.rows[0].metric,
        "other": table.rows[0].other,
        "baselines": found.by_length,
        "baseline": found.unseen,
        "baseline_knows_length": found.knows,
        "protocol_seeds": seeds,
        "lengths": [cell.length for cell in cells],
        "seen": [cell.seen for cell in cells],
        "log": needs_log(cell.length for cell in cells),
        "rows": [
            _row(row, seeds, by_run, catalog)
            | {"ratio": ratios.get(row.label), "command": table.command(row)}
            | {"wrong": list(_wrong(row, by_run)), "chosen_here": row.label in marks}
            for row in table.rows
        ],
        "pairs": list(_pairs(table.rows)),
        "disclosure": disclosure([table], catalog),
    }


def _wrong(row: Row, by_run: Mapping[str, Record]) -> Iterator[list[Any]]:
    """Yield the first wrong answer of each run: its index, the length, and what was said."""
    for at, run in enumerate(row.runs):
        scores = by_run[run].by_mode.get(row.mode, by_run[run].scores).last
        answers = ((score.length, score.wrong[0]) for score in scores if score.wrong)
        for length, one in islice(answers, 1):
            texts = (shortened(text, 48) for text in (one.prompt, one.expected, one.given))
            yield [at, length, *texts]


def _pairs(rows: Sequence[Row]) -> Iterator[list[Any]]:
    """Yield the tested pairs of a table: indices of both rows, then the numbers of compare.js."""
    places = {row.label: at for at, row in enumerate(rows)}
    for one in comparisons(rows):
        if one.difference is not None:
            own = one.difference
            numbers = own.mean, own.low, own.high, own.n, one.p, one.adjusted, one.sign
            yield [places[one.first], places[one.second], *numbers]


def _row(row: Row, seeds: int, by_run: Mapping[str, Record], catalog: Catalog) -> dict[str, Any]:
    """Return the columns and fields of a row, and facts that only the pages need."""
    current = catalog.version(row.spec)
    return (
        {one.name: one.of(row) for one in columns.COLUMNS if one.at_length is None}
        | vars(row)
        | {
            "shown": {one.name: one.shown(row) for one in columns.in_tables("page")},
            "bare": bare(row.encoding),
            "plain": row.plain,
            "aside": row.aside,
            "old": current is not None and str(current) != row.version,
            "few": len(row.seeds) < seeds and not row.apart,
            "unlearned": row.unlearned,
            "failures": [(seed, reason[:200]) for seed, reason in row.failures],
            "after": after_the_curve(row.cells),
            "run_seeds": [by_run[run].seed for run in row.runs],
        }
    )


def _page(folder: str, name: str, known: ClassDoc | None) -> dict[str, str]:
    return {"page": f"{folder}/{slug(name)}.html", "summary": known.summary if known else ""}


def _encoding(parts: Sequence[ClassDoc]) -> dict[str, Any]:
    """Return the papers of an encoding, and whether fused attention kernels can compute it."""
    hooks = {hook for part in parts for hook in part.hooks}
    papers = [[one.name, one.url] for part in parts for one in cited(part.paper)]
    fused = bool(parts) and not hooks & {"bias", "scores", "weights"}
    modes = dict(_MODE.findall(" ".join(part.doc for part in parts)))
    return {"papers": papers, "fused": fused, "modes": modes}
