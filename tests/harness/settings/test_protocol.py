"""Protocols, overrides, seeds and the identity of a run."""

import json

import pytest

from experiment.config import ConfigError, RunConfig
from experiment.protocol import protocol_names
from experiment.seeds import parse_seeds
from harness import tasks
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.grids import Grids
from leaderboard.record.read import RECORDS
from pezoo.registry import expand
from pezoo.spec import parse


def run(pe="rope", task="copy", seed=0, overrides=(), protocol="quick"):
    return resolve(load_protocol(protocol, overrides), task, parse(pe), seed, "cpu", "auto")


@pytest.mark.parametrize("name", protocol_names())
def test_every_protocol_resolves_for_every_task(name):
    protocol = load_protocol(name)
    for task in tasks.names():
        if protocol.track == "text" and task != "text":
            continue
        config = resolve(protocol, task, parse("prism"), 0, "cpu", "auto")
        made = tasks.make(task)
        first, last = made.lengths(1, 100)[0], made.max_length or 10**7
        wanted = [n for n in config.eval.lengths if first <= n <= last]
        missing = [n for n in wanted if not made.lengths(n, n)]
        gaps = protocol.track != "decoder" or isinstance(made, Grids)  # of ranges, and of squares
        assert not missing or gaps, (task, missing)
        assert config.train.lengths[1] in config.eval.lengths


def test_settings_that_came_later_leave_records_their_identity():
    for path in [*RECORDS.glob("*/*/*/*.json")][::20]:
        raw = json.loads(path.read_text("utf-8"))
        config = RunConfig.model_validate(raw["config"])
        assert (config.hash, config.model_dump(mode="json")) == (raw["run"], raw["config"])


def test_hash_changes_with_what_matters_and_only_with_it():
    assert run().hash == run().hash
    others = [run(seed=1), run(task="reverse"), run("alibi"), run("rope(base=500)")]
    others.append(run(overrides=("train.steps=7",)))
    assert len({run().hash, *(c.hash for c in others)}) == 6


def test_protocol_options_reach_the_encoding_and_typed_ones_win():
    own = {"protocol": "turing2024-mini", "task": "turing_addition"}
    assert run("hard_alibi", **own).spec == "hard_alibi(masked=2)"
    assert run("hard_alibi(masked=3)", **own).spec == "hard_alibi(masked=3)"
    own = {"protocol": "ruoss2023-mini", "task": "copy"}
    assert run("randomized:learned", **own).spec == "randomized:learned(max_len=2048,std=1.0)"


def test_a_changed_protocol_has_another_name():
    assert run(overrides=("train.steps=7",)).protocol.startswith("quick+")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.stps=5", "did you mean steps"),
        ("train..steps=5", "has an empty name"),
        ("trian.steps=5", "did you mean train"),
        ("train.steps=-5", "greater than or equal to 0"),
        ("train.steps=many", "train.steps"),
        ("nonsense", "expected key=value"),
        ("train.betas=[1, 1]", "less than 1"),
        ("encodings.lerned.max_len=3", "did you mean learned"),
        ("tasks.cpy.train_lengths=[1, 2]", "did you mean copy"),
        ("tasks.copy.train_lenghts=[1, 2]", "tasks.copy 'train_lenghts'; did you mean train_le"),
        ("tasks.copy.evl.window=5", "tasks.copy 'evl'; did you mean eval"),
        ("tasks.copy.eval.widow=5", "tasks.copy.eval 'widow'; did you mean window"),
        ("tasks.copy.eval.window=5", "quick, tasks.copy.eval: stride 20 must be below window 5"),
        ("tasks.copy.eval.stride=x", "quick, tasks.copy.eval.stride: expected a whole number"),
        ('tasks."copy(symbols=2)".eval.widow=5', "did you mean window"),
        ("tasks.copy.train_lengths=[10, 5]", r"lengths are \[10, 5\]: expected the shortest"),
        ("tasks.copy.curriculum=[{until=0.5,max=2},{until=0.4,max=3}]", "expected each above the"),
    ],
)
def test_bad_overrides_say_what_is_wrong(override, words):
    with pytest.raises(ConfigError, match=words):
        run(overrides=(override,))


@pytest.mark.parametrize("task", ['"copy(symbols=2)"', "'copy(symbols=2)'", "copy(symbols=2)"])
def test_an_override_of_a_task_with_options_is_split_outside_of_its_name(task):
    overrides = (f"tasks.{task}.train_lengths=[2, 3]", f"tasks.{task}.train.lr=0.5")
    one = run(task="copy(symbols=2)", overrides=overrides).train
    assert (one.lengths, one.lr) == ((2, 3), 0.5)
    assert run(overrides=overrides).train == run().train


def test_packed_rows_have_no_training_set():
    with pytest.raises(ConfigError, match=r"samples 9 .*take samples 0, or a protocol"):
        run(overrides=("train.samples=9", "train.context=64"))


def test_an_override_of_all_tasks_holds_for_tasks_with_settings_of_their_own():
    overrides = ("eval.lengths=42-100", "train.lengths=[1, 30]", "train.batch=9")
    protocol = load_protocol("ruoss2023", overrides)
    for task in ("even_pairs", "modular_arithmetic_simple"):
        _, train, test = protocol.settings(task)
        assert (train.lengths, train.batch) == ((1, 30), 9)
        assert test.lengths == tuple(range(42, 101))
    own = ("tasks.modular_arithmetic_simple.eval_lengths=[41]", *overrides)
    protocol = load_protocol("ruoss2023", own)
    assert protocol.settings("modular_arithmetic_simple")[2].lengths == (41,)
    assert protocol.settings("even_pairs")[2].lengths == tuple(range(42, 101))


def test_lengths_may_be_a_range():
    assert load_protocol("ruoss2023").eval.lengths == tuple(range(40, 501))
    assert run(overrides=("eval.lengths=42-44",)).eval.lengths == (42, 43, 44)
    for bad in ("42-", "44-42", "0-3", "a-b"):
        with pytest.raises(ConfigError, match="lengths"):
            run(overrides=(f"eval.lengths={bad}",))


def test_seeds():
    assert parse_seeds("0-2,7") == [0, 1, 2, 7]
    for bad in ("", "x", "2-0", "1,1", "-1", "0-99999", "٣", "0-２", "1\n2"):
        with pytest.raises(ValueError, match="seeds"):
            parse_seeds(bad)


PAPERS = {  # Sections 6.0.1 and 6.2 of PRISM's paper, for all other tasks nothing
    "dyn_str_cpy": {"copy_every": 5},
    "odds_first": {"before": "0+3"},
    "reverse": {"copy_every": 5},
    "scan_cot": {"copy_every": 5},
    "stack_manipulation": {"before": "0+3"},
}


@pytest.mark.parametrize("task", tasks.names())
def test_prism_is_the_papers_on_every_task(task):
    paper = expand(parse("prism_2025")).options
    made = run("prism_2025", task=task, protocol="prism2025")
    assert made.encoding == "prism_2025"
    assert parse(made.spec).options == paper | PAPERS.get(task, {})
    typed = {"copy_every": 0, "before": 0, "key_bias": 1.0, "reset_bias": -1.0}
    words = ",".join(f"{key}={value}" for key, value in typed.items())
    other = run(f"prism_2025({words})", task=task, protocol="prism2025")
    assert parse(other.spec).options == paper | typed


@pytest.mark.parametrize("task", ["copy", *PAPERS])
def test_the_small_prism2025_scales_the_encoding_and_keeps_the_papers_form(task):
    made = run("prism_2025", task=task, protocol="prism2025-mini")
    scaled = {"cursors": 1, "d_pe": 112} | PAPERS.get(task, {})
    assert parse(made.spec).options == expand(parse("prism_2025")).options | scaled
    assert (made.model.norm, made.model.activation, made.train.lengths) == ("post", "relu", (1, 10))
    assert (made.eval.top, made.eval.top_below) == (3, 0.1)


def test_a_protocol_extends_another(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "quick"\n[train]\nsteps = 7\n[tasks.copy]\ntrain_lengths = [1, 5]')
    mine, quick = load_protocol(str(path)), load_protocol("quick")
    assert mine.name == "mine"
    assert mine.train == quick.train.model_copy(update={"steps": 7})
    assert mine.tasks.keys() == quick.tasks.keys() | {"copy"}
    assert (mine.encodings, mine.eval) == (quick.encodings, quick.eval)
    for base, words in (("quik", "can extend one of .*quick"), ("prism2025-variants", "extends")):
        path.write_text(f'extends = "{base}"')
        with pytest.raises(ConfigError, match=words):
            load_protocol(str(path))


def test_the_papers_baseline_and_other_training_lengths():
    base = load_protocol("prism2025")
    assert load_protocol("prism2025-baseline").model.width == 512
    assert load_protocol("prism2025-baseline").train == base.train
    lengths = {
        task: run(task=task, protocol="prism2025-variants").train.lengths
        for task in ("copy", "dyn_str_cpy", "addition", "reverse")
    }
    assert lengths == {
        "copy": (1, 40), "dyn_str_cpy": (1, 5), "addition": (1, 40), "reverse": (1, 40),
    }  # fmt: skip


def test_a_task_with_options_is_a_run_of_its_own():
    plain, binary = run(), run(task="copy(symbols=2)")
    assert (binary.task, run(task="copy(symbols=10)").hash) == ("copy(symbols=2)", plain.hash)
    assert binary.hash != plain.hash
    square = run(task="multiplication(square=true)", protocol="prism2025")
    assert square.train.lengths == (1, 9)  # those of multiplication, where there are no others
    own = run(task="copy(symbols=2)", overrides=("tasks.copy.train_lengths=[1,4]",))
    assert own.train.lengths == (1, 4)


def test_drawing_instances_needs_a_task_that_lists_them():
    with pytest.raises(ConfigError, match='copy does not: take "lengths"'):
        run(overrides=("train.draw=instances",))
    assert run(task="scan_cot", protocol="prism2025").train.draw == "instances"


@pytest.mark.parametrize(
    ("protocol", "encoding", "tasks"),
    [
        ("chen2026", "lbpe", {"select_first", "select_middle", "select_last"}),
        ("chen2026-mini", "lbpe", {"select_first", "select_middle", "select_last"}),
        ("chen2026-mini", "lbpe_sh", {"select_first", "select_middle", "select_last", "copy"}),
        ("turing2024-mini", "hard_alibi", {"turing_addition"}),
        ("turing2024-mini", "prism", {"copy", "reverse", "odds_first"}),
    ],
)
def test_a_protocol_names_the_tasks_that_options_were_chosen_on(protocol, encoding, tasks):
    assert {*load_protocol(protocol).chosen_on[encoding]} == tasks


def test_a_task_with_options_is_named_as_runs_name_it():
    """However it is typed; a wrong option would have no effect and say nothing."""
    typed = ('tasks."odds_first( symbols=2 )".train_lengths=[1, 3]',)
    protocol = load_protocol("quick", typed)
    assert protocol.settings("odds_first(symbols=2)")[1].lengths == (1, 3)
    assert protocol.settings("odds_first")[1].lengths == (1, 10)
    with pytest.raises(ConfigError, match="symbols"):
        load_protocol("quick", ('tasks."odds_first(symbls=2)".train_lengths=[1, 3]',))


def test_a_task_with_options_in_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'extends = "quick"\nname = "mine"\n[tasks."odds_first({})"]\ntrain_lengths = [1, 3]\n'
    path.write_text(text.format("symbols=2"))
    protocol = load_protocol(str(path))
    assert protocol.settings("odds_first(symbols=2)")[1].lengths == (1, 3)
    for options, message in (
        ("symbls=2", "unknown option of odds_first 'symbls'"),
        ("symbols = 2", r"written 'odds_first\(symbols=2\)'"),
        ("symbols=10", "written 'odds_first'"),
        ("symbols=-5", "odds_first"),
    ):
        path.write_text(text.format(options))
        with pytest.raises(ConfigError, match=message):
            load_protocol(str(path))
