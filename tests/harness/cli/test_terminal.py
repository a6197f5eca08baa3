"""Terminal output: tables that fit, lists, formats, one line for bad input."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from experiment.protocol import read_protocol
from harness.cli.tables import print_records
from leaderboard.record.schema import Record
from pezoo.encodings.prism import PRISM

LONG = "prism_spectral(controller=latch,cursors=2,gate_noise=3.0,mu=-4.0)"


def printed(records, *form, **options):
    print_records([Record.of(record) for record in records], *form, **options)


@pytest.fixture
def made_record(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "leaderboard")
    from made_records import raw_record

    return raw_record


@pytest.fixture
def records(made_record):
    lengths = (10, 11, 15, 16, 20, 21, 30, 31, 50, 51, 100, 101)
    names = ("rope", "randomized:shifted_sinusoidal", LONG)
    right = {length: 100 - length // 2 for length in lengths}
    return [made_record(name, seed, right) for name in names for seed in range(3)]


@pytest.mark.parametrize("width", [80, 120])
def test_no_row_of_the_closing_table_wraps(width, records, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    printed(records, "table")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    (head,) = [line for line in out.splitlines() if line.startswith("encoding")]
    assert "randomized:shifted_sinusoidal" in out  # names are not cut
    assert sum(word.isdigit() for word in head.split()) >= 3
    assert f"prism_spectral [a] = {LONG}" in " ".join(out.split())


def test_in_markdown_medians_and_failures_stand_before_the_tests(made_record, capsys):
    records = [made_record("rope", seed) for seed in range(4)]
    failed = made_record("rope", 4, status="failed", reason="loss is not finite")
    failed |= {"scores": {"last": [], "best": []}}
    printed([*records, failed], "markdown")
    lines = capsys.readouterr().out.splitlines()
    where = [
        next(at for at, line in enumerate(lines) if words in line)
        for words in ("- median over seeds at 20", "- rope, seed 4 failed: loss is not", "No comp")
    ]
    assert where == sorted(where)


def test_wide_has_every_length_and_interval(records, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    printed(records, "table", wide=True)
    head, _, row = capsys.readouterr().out.splitlines()[1:4]
    assert sum(word.isdigit() for word in head.split()) == 12
    assert row.count("[") >= 13


def test_wide_has_both_measures_of_encoders(made_record, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    record = made_record("rope", 0, {10: 95, 20: 40}, config={"track": "encoder"})
    printed([record], "table")
    out = " ".join(capsys.readouterr().out.split())
    assert "token accuracy per length" in out
    assert "exact match: --wide" in out
    printed([record], "table", wide=True)
    out = capsys.readouterr().out
    head, _, row = out[out.index("exact match per length") :].splitlines()[1:4]
    assert (head.split(), row.split()) == (
        ["encoding", "unseen", "10", "20"],
        ["rope", "40.0", "95.0", "40.0"],
    )
    assert "--wide" not in out


def test_text_is_in_bits_and_wide_has_tokens(made_record, monkeypatch, capsys):
    from made_records import text_record

    monkeypatch.setenv("COLUMNS", "120")

    records = [
        text_record(name, seed, {128: 2.5, 256: bits + seed / 10})
        for name, bits in (("rope", 3.5), ("alibi", 2.4))
        for seed in range(3)
    ]
    printed(records, "table")
    out = capsys.readouterr().out
    assert "mean bits per byte per length [95 % interval" in " ".join(out.split())
    alibi, rope = [line.split() for line in out.splitlines() if line.startswith(("al", "ro"))][:2]
    assert (alibi[:6], rope[:4]) == (
        ["alibi", "1", "1x", "2.500", "[2.252,", "2.748]"],
        ["rope", "2", "1x", "3.600"],
    )
    assert "median over seeds at 256, bits: alibi 2.500; rope 3.600" in out
    assert "alibi: better than rope" in out
    assert "token accuracy per length" not in out
    printed(records, "table", wide=True)
    out = capsys.readouterr().out
    assert out.index("token accuracy per length, %") < out.index("bits saved against")


def test_where_no_answer_is_right_the_table_has_tokens(made_record, capsys):
    record = made_record("rope", 0, {10: 0, 20: 0})
    printed([record], "table")
    out = capsys.readouterr().out
    head, _, row, last = out[out.index("token accuracy per length") :].splitlines()[1:5]
    assert last.split() == ["baseline", "10.0", "10.0", "10.0"]
    tokens = [f"{100 * score['token']:.1f}" for score in record["scores"]["last"]]
    assert head.split() == ["encoding", "unseen", "10", "20"]
    assert row.split() == ["rope", "-", tokens[0], "-"]
    printed([made_record("rope", 0, {10: 1, 20: 0})], "table")
    assert "token accuracy" not in capsys.readouterr().out


def test_the_table_has_the_baseline_and_names_who_does_not_exceed_it(made_record, capsys):
    encoder = {"task": "bucket_sort", "config": {"track": "encoder"}}
    right = {"rope": 80, "nope": 90}
    records = [made_record(name, right={10: 99, 100: r}, **encoder) for name, r in right.items()]
    for record in records:
        for score in record["scores"]["last"]:
            score["token"] = score["exact"]
    printed(records, "table")
    out = capsys.readouterr().out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("baseline ")]
    assert row == ["baseline", "86.0", "60.0", "86.0"]
    assert "which ignores the prompt; rope does not exceed it" in " ".join(out.split())
    printed(records, "markdown")
    assert "baseline, which ignores the prompt: 86.0 % beyond training" in capsys.readouterr().out
    for task, expected in (("majority", ["10.0"] * 3), ("copy", None)):
        printed([made_record("rope", right={10: 99, 20: 80}, task=task)], "table")
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        found = [row[1:] for row in rows if row[:1] == ["baseline"]]
        assert found == ([expected] if expected else [])


def test_a_table_is_named_by_the_settings_that_differ(made_record, capsys):
    protocol = read_protocol("quick", ("train.steps=200",))
    model, train, test = protocol.settings("sum")
    own = {"model": model.model_dump(), "train": train.model_dump(), "eval": test.model_dump()}
    own["track"] = protocol.track
    record = made_record("rope", protocol=protocol.name, task="sum", config=own)
    for form in ("table", "markdown"):
        printed([record], form)
        assert "sum (quick, 200 steps)" in capsys.readouterr().out


def test_a_mode_has_no_rank(made_record, capsys):
    one = made_record("prism", 0)
    one["modes"] = {"snapped": one["scores"]}
    printed([one], "table")
    (line,) = [
        text for text in capsys.readouterr().out.splitlines() if text.startswith("prism (snapped)")
    ]
    assert line.split()[2:4] == ["1.5x¹", "70.0"]


def test_lists_fit_80_columns_and_options_are_told_by_name(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for what, name in (("encodings", "prism"), ("tasks", "odds_first"), ("protocols", "quick")):
        code, out, _ = call("list", what)
        assert (code, name in out) == (0, True)
        assert max(map(len, out.splitlines())) <= 80
    code, out, _ = call("list", "encodings", "rope")
    assert "base=10000.0" in out
    code, out, _ = call("list", "encodings", "--format", "json")
    assert {"name", "summary", "paper", "options", "formula", "meaning"} <= set(json.loads(out)[0])


def test_list_says_what_options_mean(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = call("list", "encodings", "label_based(max_len=512)")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "the same as randomized(max_len=512):learned" in words
    assert words.index("distances around ALiBi") < words.index("name learned")
    _, out, _ = call("list", "encodings", "rope")
    assert "            drop        DroPE: positions are dropped" in out
    _, out, _ = call("list", "encodings")
    assert "label_based         the same as randomized:learned" in out
    _, out, _ = call("list", "encodings", "randomized:rope", "--format", "json")
    assert [part["name"] for part in json.loads(out)] == ["randomized", "rope"]


@pytest.mark.parametrize("what", ["encodings", "tasks"])
def test_every_option_is_explained(what, call):
    _, out, _ = call("list", what, "--format", "json")
    unexplained = [f["name"] for f in json.loads(out) if f.get("options") and not f["meaning"]]
    assert unexplained == []


def test_each_option_of_prism_has_one_line_with_the_papers_symbol_and_place(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call("list", "encodings", "prism")
    lines = [line.strip() for line in out.splitlines()]
    place = re.compile(r"(Sec|Eq|Alg)\. [A0-9]|Figure 11|ours")
    for option in fields(PRISM.Options):
        (line,) = [one for one in lines if re.match(rf"{option.name} +[^ =]", one)]
        assert place.search(line), line


def test_list_tells_a_task_by_its_options(call):
    _, out, _ = call("list", "tasks", "odds_first( symbols=2 )", "--format", "json")
    facts = json.loads(out)
    assert (facts["name"], facts["options"]) == ("odds_first(symbols=2)", "symbols=10")
    assert (facts["example"], facts["chance"]) == ("010101=111000", "0.5")
    assert "Ruoss et al. (2023)" in facts["meaning"]
    code, _, err = call("list", "tasks", "odds_first(symbol=2)")
    assert (code, "did you mean symbols?" in err) == (2, True)


@pytest.mark.parametrize(
    ("what", "name", "parts"),
    [
        ("protocols", "ruoss2023", ["lengths 40-500"]),
        ("protocols", "prism2025-variants", ["curriculum none"]),
        (
            "protocols",
            "ruoss2023-mini",
            [
                "encoders, which see all tokens",
                *("layers 5; heads 8; width 64", "norm post", "activation relu"),
                *(
                    "steps 1500; batch 32;",
                    "lr 0.001",
                    "lengths 1, 20",
                    "curriculum (until 0.3; max 5)",
                ),
                *("schedule cosine", "warmup 200", "samples 128"),
                "lengths 20, 21, 30, 31, 40, 41, 60, 61, 100, 101",
                "learned(max_len=2048, std=1.0)",
                "modular_arithmetic_simple (train_lengths 1, 19; eval_lengths 19, 21,",
            ],
        ),
        (
            "protocols",
            "turing2024",
            [
                *("residual parallel", "batch 16", "context 500"),
                *("schedule linear", "warmup 100", "weight_decay 0.1", "window 500; stride 20"),
                *("turing_addition (eval.set n+n", "name 17+n; lengths 17, 32,", "train.lr 0.0003"),
                "hard_alibi(masked=7)",
            ],
        ),
        ("tasks", "turing_sgd", ["if it ends with weights within 2 levels in both"]),
        ("tasks", "turing_addition(format=plain)", ['Further test sets: "n+n", both of n digits']),
        ("tasks", "turing_machine", ["[x] for the x of a file's machine"]),
    ],
)
def test_list_describes_one(call, what, name, parts):
    words = " ".join(call("list", what, name)[1].split())
    for part in parts:
        assert part in words, part


def test_list_gives_an_example_once(call):
    _, out, _ = call("list", "tasks", "cycle_navigation")
    assert out.count("20100=3") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bensh", "bench"),
        ("list encodings ssmax:rope:nope", "rope cannot wrap nope: only"),
        ("bench --pe 'rope(base=0)' --task copy", "base"),
        ("bench --pe rope,rope --task copy", "twice"),
        ("bench --pe rope", "--task"),
        ("BENCH --set model.layers=1000000", "or equal to 1000"),
        ("BENCH --set eval.lengths=[1000000000]", "or equal to 10000000"),
        ("BENCH --set eval.lengths=5,5", "a list"),
        ("BENCH --set train.lengths=[10,1]", "lengths"),
        ("BENCH --set 'train.curriculum=[{until=0.5,max=5},{until=0.5,max=8}]'", "until"),
        ("BENCH --device warp", "warp"),
        ("BENCH --attention flash", "attention"),
        ("BENCH --seeds 3-1", "seeds"),
        ("BENCH --seeds ''", "--seeds"),
        ("BENCH --seeds=", "0-2"),
        ("BENCH --runs /proc/none", "cannot write"),
        ("BENCH --runs ''", "--runs"),
        ("BENCH --known ' '", "--known"),
        ("BENCH --threads 100000", "1024"),
        ("BENCH --precision fp8", "bf16"),
        ("perf --pe rpoe", "did you mean rope"),
        ("perf --pe rope,rope", "twice"),
        ("perf --baseline rpoe", "did you mean rope"),
        ("perf --task copy,reverse", "task"),
        ("perf --pe nope --task scan_cot --length 5000", "length 5000"),
        ("perf --device warp", "warp"),
        ("perf --length 0", "--length"),
        ("perf --repeats 0", "--repeats"),
        ("perf --threads 100000", "--threads"),
        ("perf --format xml", "--format"),
        ("leaderboard build --out setup.cfg", "--out"),
        ("leaderboard build --runs nowhere", "nowhere"),
        ("leaderboard build --markdown .", "--markdown expects a file, . is a folder"),
        (
            "leaderboard build --markdown /dev/null",
            "expects a file, /dev/null is a device or a pipe",
        ),
        ("leaderboard build --markdown x.md --source x", "--source expects an https address"),
        ("leaderboard open --out nowhere", "leaderboard build"),
        ("list encodings roppe", "did you mean rope"),
        ("list encodings 'randomized:rope(base=x)'", "finite float"),
        ("bench --pe latch:ideal --task copy", "latch:ideal cannot run on copy"),
        ("check odd_first", "odds_first? (a task)"),
        ("check rop", "rope"),
    ],
)
def test_bad_input_is_one_message_before_anything_is_written(
    line, words, call, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.cfg").touch()
    code, out, err = call(*shlex.split(line.replace("BENCH", "bench --pe rope --task copy")))
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["setup.cfg"]
