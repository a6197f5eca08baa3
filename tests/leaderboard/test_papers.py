"""Tables of papers: what was published, and which records fill which cell with what."""

from __future__ import annotations

import csv
import io
import json
import re
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from made_records import paper_run, paper_score
from pydantic import TypeAdapter

from harness import tasks
from harness.cli.main import cli
from harness.settings.catalog import read_catalog
from harness.settings.protocol import load_protocol
from leaderboard.papers import text
from leaderboard.papers.caption import budgets, requests
from leaderboard.papers.cells import fill
from leaderboard.papers.paper import Number, Paper, lines_of, names, read
from leaderboard.papers.pictures import draw, figures_of, points_of
from leaderboard.record.read import RECORDS
from leaderboard.record.schema import Record
from leaderboard.stats.rows import EXACT
from pezoo.registry import check
from pezoo.spec import parse

TABLES = [(name, n) for name in names() for n, one in read(name).tables.items() if not one.gains]
MINI = load_protocol("ruoss2023-mini")
MISSING = "missing_duplicate"
FEW = ("--records", str(RECORDS / "crasp-mini"))


@pytest.fixture(scope="module")
def paper() -> Paper:
    return read("ruoss2023")


def run(encoding, tokens, *, lr=1e-3, task="even_pairs", train=(), version=1, **more):
    """A run of the mini protocol; `tokens`, by length, are token accuracies or statuses."""
    settings = MINI.settings(task)[1].model_dump(mode="json") | {"lr": lr} | dict(train)
    high = settings["lengths"][1]
    last = [paper_score(n, n <= high, value, "token") for n, value in tokens.items()]
    config = {"train": settings, "encoding_version": version}
    return paper_run(MINI, task, encoding, last, config=config, **more)


def cell(filled, column, task="even_pairs"):
    (found,) = [one for one in filled.cells if (one.task, one.column) == (task, column)]
    return found


@pytest.mark.parametrize(("name", "number"), TABLES)
def test_published_tables_are_whole_and_name_what_exists(name, number):
    paper, lines = read(name), lines_of(read(name), read(name).tables[number])
    for line in lines:
        assert tasks.canonical(line.task) == line.task
        assert None not in line.numbers.values(), f"{line.task} lacks a number"
    for column in paper.table(number).columns:
        for encoding in (one for given in column.encodings for one in paper.texts(given)):
            check(parse(encoding))
    assert len({line.task for line in lines}) == len(lines)
    for protocol in paper.protocols:
        load_protocol(protocol)


def test_ruoss2023_has_15_tasks_and_agrees_with_itself_but_for_two_misprints(paper):
    lines = {
        n: {line.task: line.numbers for line in lines_of(paper, paper.tables[n])}
        for name, n in TABLES
        if name == paper.name
    }
    first, fourth = lines["1"], lines["4"]
    assert len(first) == 15
    assert sorted(lines.pop("2")) == sorted(first)  # in an order of its own
    assert all(list(table) == list(first) for table in lines.values())
    ours = [column.name for column in paper.tables["1"].columns if ":" in column.name]
    misprints = set()
    for task in first:
        assert all(fourth[task][name].value <= first[task][name].value for name in first[task])
        assert all(number.sd is not None for number in fourth[task].values())
        assert lines["3"][task]["randomized:sinusoidal"] == first[task]["randomized:sinusoidal"]
        best = max(first[task][name].value for name in ours)
        mean = max((fourth[task][name] for name in ours), key=lambda number: number.value)
        if (Number(best), mean) != (lines["5"][task]["best, max"], lines["5"][task]["best, mean"]):
            misprints.add(task)
    assert misprints == {"binary_multiplication", "bucket_sort"}


def test_a_few_numbers_by_hand(paper):
    first = {line.task: line.numbers for line in lines_of(paper, paper.tables["1"])}
    assert first["missing_duplicate"]["randomized:rope"] == Number(88.7)
    assert first["bucket_sort"]["relative"] == Number(91.9)
    fourth = {line.task: line.numbers for line in lines_of(paper, paper.tables["4"])}
    assert fourth["even_pairs"]["relative"] == Number(67.6, 15.3)
    assert fourth["bucket_sort"]["randomized:learned"] == Number(98.9, 0.4)


def test_a_cell_is_the_maximum_over_rates_and_seeds_of_the_mean_over_unseen_lengths(paper):
    records = [
        run("rope", {20: 1.0, 21: 0.6, 60: 0.4}, seed=0),  # 50 unseen
        run("rope", {20: 0.1, 21: 0.9, 60: 0.5}, seed=1),  # 70
        run("rope", {20: 0.1, 21: 0.8, 60: 0.7}, seed=0, lr=3e-4),  # 75
    ]
    filled = fill(paper, paper.tables["1"], records, MINI)
    found = cell(filled, "rope")
    assert found.ours == Number(pytest.approx(75.0))
    assert found.paper == Number(51.0)
    assert found.difference == pytest.approx(24.0)
    assert found.used == (records[2],)
    assert len(found.runs) == 3
    assert [one.column for one in filled.cells if one.ours] == ["rope"]


def test_a_mean_is_that_of_the_best_rate_with_the_sample_deviation_over_its_seeds(paper):
    rate = {1e-3: (0.4, 0.6, 0.8), 3e-4: (0.9, 0.1, 0.5), 1e-4: (0.9,)}  # means 60, 50; one seed
    records = [
        run("rope", {41: value}, seed=seed, lr=lr)
        for lr, values in rate.items()
        for seed, value in enumerate(values)
    ]
    found = cell(fill(paper, paper.tables["4"], records, MINI), "rope")
    assert found.ours == Number(pytest.approx(60.0), pytest.approx(20.0))  # sqrt(800 / 2)
    assert {one.config.train.lr for one in found.used} == {1e-3}
    alone = cell(fill(paper, paper.tables["4"], records[:1], MINI), "rope")
    assert alone.ours == Number(pytest.approx(40.0))  # one seed has no deviation


@pytest.mark.slow
def test_gains_are_the_papers_and_ours_over_tasks_and_encodings_with_runs(paper):
    """The paper says 12.0 and 43.5 (Section 4), 15.7 and 76.3 (Appendix B.1); 9.7 is of Table 5."""
    ours = {
        ("nope", "even_pairs"): 0.5, ("rope", "even_pairs"): 0.6,
        ("randomized:rope", "even_pairs"): 0.9, ("randomized:alibi", "even_pairs"): 0.2,
        ("nope", MISSING): 0.5, ("randomized:rope", MISSING): 0.4,
        ("nope", "bucket_sort"): 0.9,  # nothing randomized beside it
    }  # fmt: skip
    records = [run(name, {41: value}, task=task) for (name, task), value in ours.items()]
    filled = fill(paper, paper.table("means"), records, MINI)
    published = [round(one.paper.value, 1) for one in filled.cells]
    assert published == [12.0, 43.5, 15.7, 76.3, 9.7, 35.6]
    mean, most, *others = filled.cells
    assert mean.ours == Number(pytest.approx(10.0))  # of 90 - 60 and 40 - 50
    assert most.ours == Number(pytest.approx(30.0))
    assert {one.ours for one in others} == {None}
    shown = CliRunner().invoke(cli, ["table", "ruoss2023", "means", "--runs", "none", *FEW])
    assert "12.0" in shown.output
    assert "pezoo bench" not in shown.output


def test_hours_are_a_mean_over_all_rates_and_seeds(paper):
    hours = {(0, 1e-3): 1.0, (1, 1e-3): 2.0, (0, 3e-4): 3.0}
    records = [
        run("rope", {41: 0.5}, seed=seed, lr=lr, cost={"train_seconds": 3600 * value})
        for (seed, lr), value in hours.items()
    ]
    filled = fill(paper, paper.tables["2"], records, MINI)
    found = cell(filled, "rope")
    assert (found.ours, found.paper) == (
        Number(pytest.approx(2.0), pytest.approx(1.0)),
        Number(1.41, 0.24),
    )
    assert found.difference is None
    shown = text.as_text(filled, 80)
    assert "2.0000±1.0000 1.41±0.24" in " ".join(shown.split())
    assert "diff" not in " ".join(shown.split("\n\n")[1:])
    assert "the paper's are not compared" in " ".join(shown.split())
    assert "2.0000±1.0000 (1.41±0.24) |" in text.as_markdown(filled)
    assert "Random accuracy" not in shown


def test_the_best_of_several_encodings_fills_a_cell(paper):
    records = [run("randomized:rope", {41: 0.7}), run("randomized:alibi", {41: 0.8})]
    found = cell(fill(paper, paper.tables["5"], records, MINI), "best, max")
    assert (found.ours, found.encoding) == (Number(pytest.approx(80.0)), "randomized:alibi")
    other = [run("randomized", {41: 0.5}), run("randomized:relative", {41: 0.6}, seed=1)]
    both = cell(fill(paper, paper.tables["1"], other, MINI), "randomized:relative")
    assert both.ours == Number(pytest.approx(60.0))


def test_a_protocols_options_are_part_of_an_encoding(paper):
    options = [run("learned", {41: 0.5}), run("learned(max_len=2048)", {41: 0.5}, seed=1)]
    assert len(cell(fill(paper, paper.tables["1"], options, MINI), "learned").runs) == 2
    short = [run("learned(max_len=21)", {41: "cannot represent"})]
    assert cell(fill(paper, paper.tables["1"], short, MINI), "learned").words == "no run"
    words = [run("learned", {41: "cannot represent"})]
    empty = cell(fill(paper, paper.tables["1"], words, MINI), "learned")
    assert (empty.ours, empty.words, empty.difference) == (None, "cannot represent", None)


def test_lengths_without_instances_are_left_out_and_lengths_can_be_chosen(paper):
    record = run("rope", {20: 1.0, 41: 0.6, 60: "no instance", 61: 0.8})
    assert cell(fill(paper, paper.tables["1"], [record], MINI), "rope").ours == Number(
        pytest.approx(70.0)
    )
    chosen = fill(paper, paper.tables["1"], [record], MINI, frozenset({61, 62}))
    assert cell(chosen, "rope").ours == Number(pytest.approx(80.0))
    none = fill(paper, paper.tables["1"], [record], MINI, frozenset({99}))
    assert cell(none, "rope").words == "not tested"


def test_runs_of_other_settings_do_not_fill_a_cell(paper):
    other = [
        run("rope", {41: 0.9}, train={"steps": 4000}),
        run("rope(base=500)", {41: 0.9}),
        run("rope", {41: 0.9}, task="reverse"),
    ]
    none = fill(paper, paper.tables["1"], other, MINI)
    assert none.runs == []
    assert "no record of protocol ruoss2023-mini fills a cell; 2 of" in " ".join(text.caption(none))
    longer = load_protocol("ruoss2023-mini", ("train.steps=4000",))
    assert cell(fill(paper, paper.tables["1"], other, longer), "rope").used == (other[0],)


def test_of_several_versions_the_newest_counts_and_a_failed_run_is_words(paper):
    old, new = run("rope", {41: 0.9}), run("rope", {41: 0.6}, version=2)
    assert cell(fill(paper, paper.tables["1"], [new, old], MINI), "rope").used == (new,)
    failed = run("rope", {}, status="failed", reason="loss is not finite", seed=1)
    assert cell(fill(paper, paper.tables["1"], [failed], MINI), "rope").words == "failed"
    both = cell(fill(paper, paper.tables["1"], [failed, old], MINI), "rope")
    assert (both.ours, len(both.runs)) == (Number(90.0), 2)


@pytest.fixture(scope="module")
def filled(paper):
    records = [run("rope", {20: 1.0, 41: 0.6, 60: 0.4}), run("learned", {41: "cannot represent"})]
    return fill(paper, paper.tables["1"], records, MINI)


def test_a_table_fits_80_characters_and_shows_empty_cells(filled):
    lines = text.as_text(filled, 80).splitlines()
    assert max(map(len, lines)) <= 80
    even = " ".join(line for line in lines if line.startswith("even_pairs"))
    even = " ".join(even.split())
    assert "- 67.3 - even_pairs 50.0 51.0 -1.0 cannot" in even  # alibi, rope and learned
    assert "cannot represent 50.7 -" in even
    shown = " ".join(lines)
    assert "seed 0 and learning rate 0.001, 1 run in each cell; tested on 64 samples" in shown
    assert "each of the lengths 41, 60" in shown
    assert "Paper: 2,000,000 steps" in shown
    assert "1 of 165 cells" in shown


@pytest.mark.parametrize("number", ["1", "2", "3", "4", "5"])
def test_every_table_shows_every_name_whole(paper, number):
    shown = text.as_text(fill(paper, paper.tables[number], [], MINI), 80)
    for column in paper.table(number).columns:
        assert all(part in shown for part in column.name.split(":"))
    assert max(map(len, shown.splitlines())) <= 80


def test_the_budget_says_what_differs_from_the_papers_protocol(paper):
    simple = "modular_arithmetic_simple"
    records = [
        run("rope", {21: 0.6, 60: 0.4}),
        run("rope", {21: 0.6, 60: 0.4}, seed=1),
        run("rope", {21: 0.6, 60: 0.4}, seed=1, lr=3e-4),
        run("alibi", {21: 0.6, 61: 0.4}, task=simple, seed=2),
    ]
    full = load_protocol("ruoss2023")
    theirs, ours, changes = budgets(fill(paper, paper.tables["1"], records, MINI, reference=full))
    assert theirs.startswith("Paper: 2,000,000 steps, batch 128")
    assert "seeds 0-2 and learning rates 0.0003, 0.001, 1 to 3 runs in each cell" in ours
    assert "tested on 64 samples of each of the lengths 21, 60, 61" in ours
    assert f"train.steps {MINI.train.steps:,} (2,000,000)" in changes
    assert "train.lengths 1 to 19 or 1 to 20 (1 to 39 or 1 to 40)" in changes
    for change in ("model.dropout 0 (0.1)", "train.warmup 200 (0)", "train.batch 32 (128)"):
        assert change in changes
    assert "train.schedule cosine (constant)" in changes
    asked = fill(paper, paper.tables["1"], records, MINI, frozenset(range(42, 101)), full)
    assert "lengths 60 (even_pairs) and 61 (modular_arithmetic_simple)." in budgets(asked)[1]
    lines = csv.DictReader(io.StringIO(text.as_csv(asked)))
    assert [one["test_lengths"] for one in lines if one["ours"]] == ["60", "61"]


def test_requests_are_for_empty_cells_alone(paper):
    def asked(*records):
        return list(requests(fill(paper, paper.figures["3"], records, MINI)))

    some = run("randomized:relative", {41: 0.5}, task=MISSING)
    other = run(
        "randomized(max_len=1024):relative", {41: "cannot represent"}, task="reverse(symbols=2)"
    )
    every = ",".join(f"randomized(max_len={n}):relative" for n in (1024, 4096, 8192))
    both = f"reverse(symbols=2),{MISSING}"
    assert asked(some) == [
        f'--pe "{every}" --task "{both}"',
        '--pe "randomized:relative" --task "reverse(symbols=2)"',
    ]
    (one,) = asked(some, other)  # of three parts, one request
    assert one.endswith(f'--task "{MISSING},reverse(symbols=2)"')
    assert one.count(":relative") == 4
    columns = [column.encodings[0] for column in paper.figures["3"].columns]
    whole = [run(name, {41: 0.5}, task=task) for name in columns for task in both.split(",")]
    assert asked(*whole) == []


def test_formats_hold_the_same_numbers(filled):
    assert "50.0 (51.0, -1.0)" in text.as_markdown(filled)
    lines = list(csv.DictReader(io.StringIO(text.as_csv(filled))))
    (line,) = [one for one in lines if (one["task"], one["column"]) == ("even_pairs", "rope")]
    assert (line["ours"], line["paper"], line["difference"]) == ("50", "51", "-1")
    data = json.loads(text.as_json(filled))
    (found,) = [one for one in data["cells"] if one["ours"] is not None]
    assert (found["column"], found["used"]) == ("rope", [filled.runs[0].run])
    assert len(data["cells"]) == len(lines) == 165


def test_the_command_prints_the_table_of_the_records_it_is_given(tmp_path, save):
    one = run("rope", {41: 0.6, 60: 0.4})
    folder = save(json.loads(TypeAdapter(Record).dump_json(one, by_alias=True)))
    given = ["table", "ruoss2023", "1", "--records", str(folder), "--runs", str(tmp_path / "none")]
    shown = CliRunner().invoke(cli, given)
    assert shown.exit_code == 0
    assert "protocol ruoss2023 in brackets: model.dropout 0 (0.1), " in " ".join(
        shown.stdout.split()
    )
    assert shown.stderr.startswith("164 of 165 cells have no run; to fill them:\n")
    assert "50.0 51.0 -1.0" in " ".join(shown.stdout.split())
    assert "protocol ruoss2023-mini" in shown.stdout
    other = CliRunner().invoke(cli, [*given, "--protocol", "ruoss2023"])
    assert "0 of 165 cells" in other.stdout
    assert 'pezoo bench --protocol ruoss2023 --pe "nope,' in other.stderr
    assert "rope,learned,randomized:" in other.stderr
    hours = CliRunner().invoke(cli, ["table", "ruoss2023", "2", "--lengths", "42-100"])
    assert (hours.exit_code, "--lengths" in hours.stderr) == (2, True)


FIGURES = [(name, number) for name in names() for number in read(name).figures]


@pytest.mark.parametrize(("name", "number"), FIGURES)
def test_a_figure_names_what_exists(name, number):
    figure = read(name).figure(number)
    for protocol, forms in {"": figure.tasks, **figure.forms}.items():
        assert len(forms) == len(figure.tasks)
        assert [tasks.canonical(task) for task in forms] == list(forms)
        assert not protocol or load_protocol(protocol)
    for column in figure.columns:
        for task in figure.tasks:
            assert tasks.canonical(column.task(task)) == column.task(task)
        for encoding in column.encodings:
            check(parse(encoding))


def test_rows_of_another_protocol_and_columns_without_alignment():
    paper, mini = read("chen2026"), load_protocol("chen2026-mini")
    filled = fill(paper, paper.figure("5"), [], mini)
    assert {cell.task for cell in filled.cells} >= {"copy(aligned=11)", "parity(aligned=11)"}
    one, other = requests(filled)
    assert one.startswith('--pe "lbpe" --task "copy(aligned=11),')
    assert other.startswith('--pe "lbpe_sh" --task "copy,parity,addition(cot=False),')


def test_curves_have_a_picture_for_each_task_with_runs(paper, tmp_path):
    records = [
        run("rope", {20: 1.0, 41: 0.6, 60: 0.4}),
        run("rope", {20: 0.8, 41: 0.4, 60: 0.2}, seed=1),
        run("alibi", {20: 1.0, 41: "cannot represent"}),
        run("randomized:rope", {20: 1.0, 41: 0.9, 60: 0.9}),
    ]
    filled = fill(paper, paper.figures["4"], records, MINI)
    curves = {one.label: one for one in points_of(filled, paper.figures["4"])["even_pairs"]}
    assert curves["rope"].cells[1].main.mean == 0.5
    (path,) = draw(filled, tmp_path)
    assert path.name == "ruoss2023.figure-4.even_pairs.svg"
    picture = path.read_text("utf-8")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert {">rope<", ">randomized:rope<", ">test length"} <= set(
        re.findall(r">(?:rope<|alibi<|randomized:rope<|test length)", picture)
    )
    assert ">alibi<" not in picture
    words = " ".join(re.findall(r'class="s">([^<]+)<', picture))
    assert "Paper: 2,000,000 steps, batch 128" in words
    assert "Ours: protocol ruoss2023-mini with seeds 0, 1 and learning rate 0.001" in words


def test_a_sweep_is_one_picture_over_the_numbers_of_its_columns(paper, tmp_path):
    records = [
        run(f"randomized{options}:relative", {41: value}, task="missing_duplicate")
        for options, value in (("", 0.9), ("(max_len=8192)", 0.6))
    ]
    filled = fill(paper, paper.figures["3"], records, MINI)
    shown = text.as_text(filled, 80)
    assert "missing_duplicate - 90.0 - 60.0" in " ".join(shown.split())
    assert "the paper prints no numbers" in shown
    (path,) = draw(filled, tmp_path)
    assert path.name == "ruoss2023.figure-3.svg"
    picture = path.read_text("utf-8")
    assert ">maximum position L" in picture
    assert "longest length in training" not in picture
    assert draw(fill(paper, paper.figures["3"], [], MINI), tmp_path) == []


def over_time(encoding, shares, seconds, **changes):
    """A run of the mini protocol with an evaluation every 500 steps."""
    one = run(encoding, {41: 0.5, 60: 0.5}, task=MISSING, **changes)
    made = json.loads(TypeAdapter(Record).dump_json(one, by_alias=True))
    made["config"]["eval"]["curve_lengths"] = [41, 60]
    made["learning"] = [
        {"step": 500 * at, "seconds": second, "test_token": share}
        for at, (share, second) in enumerate(zip(shares, seconds, strict=True), 1)
    ]
    return Record.of(made)


def test_accuracy_over_training_time(paper, tmp_path):
    long = {"lengths": [1, 101]}
    records = [
        over_time("randomized:relative", (0.5, 0.9, 0.95), (100, 200, 300)),
        over_time("relative", (0.5, 0.6, 0.7), (900, 1800, 2700), train=long),
        over_time("relative", (0.5, 0.6, 1.0), (1, 2, 3)),  # not trained long
        run("randomized:relative", {41: 1.0}, task=MISSING, seed=1),  # no scores along training
    ]
    along = load_protocol("ruoss2023-mini", ("eval.curve_lengths=[41,60]",))
    filled = fill(paper, paper.figures["2"], records, along)
    assert [one.ours.value for one in filled.cells] == pytest.approx([95.0, 70.0])
    shown = " ".join(text.as_text(filled, 100).split())
    assert "randomized:relative: 90 % after 200 s and 1,000 steps (seed 0)" in shown
    assert "relative, trained long: 90 % never (seed 0)" in shown
    (path,) = draw(filled, tmp_path)
    picture = path.read_text("utf-8")
    assert {">100<", ">2700<"} <= set(re.findall(r">\d+<", picture))
    assert ">relative, trained long<" in picture
    # Unless told, the lengths are all those beyond training.
    assert fill(paper, paper.figures["2"], records, MINI).runs == []
    first, second = requests(fill(paper, paper.figures["2"], [], MINI))
    assert "=[21,30,31,40,41,60,61,100,101]'" in first
    assert second.endswith("--set 'train.lengths=[1,101]'")


def test_exact_match_over_the_steps_of_training(tmp_path):
    paper, along = read("chen2026"), load_protocol("chen2026-mini", ("eval.curve_lengths=6-10",))
    task, label = "addition(cot=False)", "ideal_sh"
    last = [paper_score(n, n <= 5, 0.75) for n in along.settings(task)[2].lengths]
    records = [
        paper_run(
            along,
            task,
            label,
            last,
            seed=seed,
            config={"encoding_version": 2},
            more={
                "learning": [{"step": 250, "test_exact": low}, {"step": 500, "test_exact": 0.95}]
            },
        )
        for seed, low in ((0, 0.2), (1, 0.4))
    ]
    figure = paper.figure("2")
    filled = fill(paper, figure, records, load_protocol("chen2026-mini"))
    found = cell(filled, label, "addition(aligned=11,cot=False)")
    assert found.ours == Number(pytest.approx(95.0), pytest.approx(0.0))
    (points,) = points_of(filled, figure)[found.task]
    assert [(one.length, one.main.mean) for one in points.cells] == [
        (250, pytest.approx(0.3)),
        (500, 0.95),
    ]
    assert points.metric == EXACT
    assert "ideal_sh: 90 % after 0 s and 500 steps (seeds 0, 1)" in text.as_text(filled, 100)
    assert [path.suffix for path in draw(filled, tmp_path)] == [".svg"]
    assert fill(paper, paper.figure("2b"), records, load_protocol("chen2026-mini")).runs == []


def top_three(encoding, last, best):
    """A run of prism2025-mini on copy; `best` is None where its loss never was low enough."""
    mini = load_protocol("prism2025-mini")
    own = [paper_score(n, n <= 10, last) for n in mini.settings("copy")[2].lengths]
    scores = {"last": own, "best": []}
    if best is not None:
        scores["top3"] = [
            score | paper_score(score["length"], score["seen"], best) for score in own
        ]
    return paper_run(mini, "copy", encoding, own, more={"scores": scores})


def test_prism2025_shows_the_three_best_evaluations_in_a_band_beside_the_last_one(tmp_path):
    paper = read("prism2025")
    assert [*paper.figures] == [str(n) for n in range(1, 11)]
    records = [top_three("prism_2025", 0.5, 0.9375), top_three("shifted_sinusoidal", 0.25, None)]
    figure, mini = paper.figure("6"), load_protocol("prism2025-mini")
    filled = fill(paper, figure, records, mini, reference=load_protocol("prism2025"))
    found = {one.column: one for one in filled.cells}
    assert found["prism_2025"].ours == Number(pytest.approx(93.75))
    assert found["prism_2025, last"].ours == Number(pytest.approx(50.0))
    missing = found["shifted_sinusoidal"]
    assert (missing.ours, missing.words) == (None, "loss never below 0.1")
    assert found["shifted_sinusoidal, last"].ours == Number(pytest.approx(25.0))
    shown = " ".join(text.as_text(filled, 100).split())
    assert "train.batch 64 (100)" in shown
    own, theirs = shown.split("encoding ")[1].split(" (prism")
    assert own == "prism(cursors=1,d_pe=112) or shifted_sinusoidal(span=256)"
    assert theirs.startswith("(cursors=4,d_pe=340) or shifted_sinusoidal).")
    (path,) = draw(filled, tmp_path)
    tree = ElementTree.fromstring(path.read_text("utf-8"))
    bands = [one.get("d") for one in tree.iter() if one.get("fill-opacity")]
    assert len(bands) == 3
    heights = sorted({float(y) for y in re.findall(r"\d+\.\d (\d+\.\d)", bands[-1])})
    assert heights == pytest.approx(
        [44, 92.75], abs=0.1
    )  # of 300 pixels below 44: .8375 to 1, as no share is above 1


@pytest.mark.slow
def test_a_figure_may_name_protocols_of_its_own():
    mini = read_catalog()
    mini.protocols.pop("prism2025-variants")  # as where a site shows other protocols alone
    drawn = figures_of([top_three("prism_2025", 0.5, 0.9375)], mini)
    assert [one.file for one in drawn] == ["prism2025.figure-6.copy.svg"]
    shown = CliRunner().invoke(cli, ["table", "prism2025", "2", *FEW])
    assert (shown.exit_code, "protocol prism2025-variants" in shown.stdout) == (0, True)
