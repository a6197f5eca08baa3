"""`pezoo explain`."""

import re
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from harness import tasks
from harness.cli import explain
from harness.cli.explain import canonical, command, encodings, prf, size_of_computation, verdicts_of
from harness.tasks import make


def explained(task):
    result = CliRunner().invoke(command, [task], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def verdicts(task):
    """characterises and recovers, by encoding."""
    lines = encodings(verdicts_of(make(task))).split("\n\n")[0].splitlines()
    rule = next(at for at, line in enumerate(lines) if line.startswith("---"))
    starts = [found.start() for found in re.finditer("-+", lines[rule])]
    found, rows = {}, []
    for line in lines[rule + 1 :]:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if cells[1]:  # else the rest of the row above
            rows.append(cells)
        else:
            rows[-1] = [" ".join(pair).strip() for pair in zip(rows[-1], cells, strict=True)]
    for names, *verdict in rows:
        found |= dict.fromkeys(names.split(", "), tuple(verdict))
    return found


def test_copy_is_not_canonical_and_the_scale_hint_carries_it():
    text = explained("copy")
    for part in (
        "no: after", "an instance of length 2", "at most 1 up to length 10, as declared: same",
        "at least 1 up to length 3",
        "phi(i, j): none. the PRF of copy depends on the scale",
        "phi(i, j, n): tells them apart, as declared",
        "relation of positions alone: ideal_sh. With a\nlearned one: lbpe_sh.",
    ):  # fmt: skip
        assert part in text, part
    found = verdicts("copy")
    assert found["ideal_sh"] == ("yes", "yes")
    assert found["ideal"][0] == "no"
    assert found["rope"][1].startswith("no:")
    assert "nope" not in found
    assert found["lbpe_sh"] == ("learned", "learned")
    assert found["lbpe"] == ("no", "no phi(i, j) does")
    left = text.partition("No PRF is declared by: ")[2].replace("\n", " ")
    assert {"fire", "geometric", "nope", "prism"} <= {name.strip() for name in left.split(",")}


def test_an_aligned_copy_is_canonical_and_distances_carry_it():
    assert canonical(make("copy(aligned=11)")).startswith("yes")
    found = verdicts("copy(aligned=11)")
    assert found["ideal"] == ("yes", "yes")
    assert found["rope"] == ("no (distinctness)", "yes")
    assert found["lbpe"] == ("learned", "learned")
    assert found["learned"][1] == "no: length 6, place 18: inputs that no example has"


def test_canonicity_is_not_decided_where_a_sign_tells_the_length():
    text = canonical(make("addition(cot=False)"))
    assert text.startswith("not decided: ")
    assert "the place of + tells the length here" in text


def test_a_sign_that_stands_at_one_place_decides_nothing():
    assert canonical(make("multiplication_1n")).startswith("no: after")
    assert canonical(make("addition(aligned=11,cot=False)")).startswith("yes")


def test_few_instances_that_begin_alike_do_not_say_yes(monkeypatch):
    monkeypatch.setattr(explain, "LEAST", 10_000)
    assert canonical(make("copy(aligned=11)")).startswith("not decided: only 2156")
    assert canonical(make("select_middle")).startswith("yes")  # no two scales can begin alike


def test_without_larger_scales_nothing_is_recovered():
    assert verdicts("copy(aligned=3)")["rope"][1] == "no length beyond 5"


def test_parity_needs_two_operators():
    text = size_of_computation(make("parity"))
    assert text.startswith("at least 2 up to length 3")
    assert "at most 2 up to length 10, as declared: exclusive_or, same" in text


def test_the_middle_has_a_relation_of_positions_alone():
    task = make("select_middle")
    assert canonical(task).startswith("yes")
    assert prf(task).splitlines()[0] == "phi(i, j): tells them apart, as declared"


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ValueError, match="parity"):
        CliRunner().invoke(command, ["paritie"], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize("task", tasks.names())
def test_every_task_can_be_explained_in_80_columns(task):
    _name, *rest = explained(task).splitlines()
    assert rest[0].startswith(("Encodings that suffice", "No theorem applies"))
    assert max(map(len, rest)) <= 80


def test_a_variant_with_a_computation_is_named(call):
    assert 'See: pezoo explain "addition(cot=False)".' in " ".join(
        call("explain", "addition")[1].split()
    )
    assert "See:" not in call("explain", "scan_cot")[1]


def test_a_broken_plug_in_is_left_out_and_named(monkeypatch, capsys):
    broken = SimpleNamespace(plugin="an entry point")
    monkeypatch.setattr(explain, "names", lambda: ["broken", "rope"])
    monkeypatch.setattr(explain, "entries", lambda: {"broken": broken})
    own = explain.make
    monkeypatch.setattr(
        explain, "make", lambda name, shape: own(name, shape) if name == "rope" else 1 / 0
    )
    assert [*verdicts_of(make("copy")).values()] == [["rope"]]
    assert "left out: plug-in broken: ZeroDivisionError" in capsys.readouterr().err


def test_a_task_of_others_with_a_wrong_computation_is_told_so(monkeypatch):
    class Mine(type(make("copy"))):
        def computation(self, n):
            raise IndexError("out of range")

    monkeypatch.setattr(tasks, "make", lambda text: Mine())
    result = CliRunner().invoke(command, ["mine"])
    assert result.exit_code == 1
    assert "the computation of mine fails (IndexError: out of range): pezoo check" in result.output


@pytest.mark.parametrize("task", ["alternation(k=11)", "ngram_copy(n=8,repeats=1)"])
def test_a_task_without_small_scales_is_explained(task):
    assert "No theorem applies" in explained(task)


def test_the_aligned_task_that_is_suggested_exists():
    suggested = re.search(r"or (addition\(.*\))", prf(make("addition(cot=False)")))[1]
    assert make(suggested).aligned == 20
