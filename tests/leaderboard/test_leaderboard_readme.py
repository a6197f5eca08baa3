"""The README's first table is made from the records, and `check` refuses one that is not."""

from xml.etree import ElementTree

import pytest
from made_records import KNOWN

from leaderboard.record.read import load
from leaderboard.render.markdown import stale, write_markdown
from leaderboard.render.readme import BEGIN, END, filled, picture
from leaderboard.stats.costs import Measured
from leaderboard.stats.tables import tables

EMPTY = f"# Name\n\n{BEGIN}\nwhatever\n{END}\n\nMore.\n"


@pytest.fixture(autouse=True)
def costs_are_not_measured(monkeypatch):
    monkeypatch.setattr("leaderboard.render.readme.measured", lambda: ())


@pytest.fixture
def known():
    return KNOWN


@pytest.fixture
def made(raw, save, known):
    """alibi solves copy at both multiples, rope with two of three seeds, lbpe_sh and nope never;
    t5 and alibi on dyn_str_cpy have too few seeds."""
    far, near = {10: 100, 20: 90, 100: 95}, {10: 100, 20: 89, 100: 20}
    right = {"alibi": (far, far, far), "rope": (far, far, near), "nope": (near, near, near),
             "lbpe_sh": (near, near, near), "t5": (far, far)}  # fmt: skip
    records = [raw(name, at, one) for name, own in right.items() for at, one in enumerate(own)]
    records += [raw("alibi", at, {10: 100, 15: 95, 20: 90}, task="reverse") for at in range(3)]
    records += [raw("alibi", 0, far, task="dyn_str_cpy")]
    return tables(load([save(*records)])[0], known)


def table(text):
    """The table's lines as lists of cells, without the rule below the heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [cells[0], *cells[2:]]


def test_tasks_solved_at_one_two_and_ten_times_the_training_length(made, known):
    text = filled(EMPTY, made, known)
    _, *rows = table(text)
    assert rows == [
        ["alibi", "2/2", "2/2", "1/1", "≥10x"],
        ["rope", "1/1", "0/1", "0/1", "1x"],
        ["nope", "1/1", "0/1", "0/1", "1x"],
        ["lbpe_sh † (receives the length)", "1/1", "0/1", "0/1", "1x"],
    ]
    assert [text.splitlines()[0], text.splitlines()[-1]] == ["# Name", "More."]


def test_of_many_encodings_eight_rows_stay_and_the_reference_is_one(raw, save, known):
    names = ["alibi", "fire", "geometric", "kerple", "lbpe", "nope", "relative", "t5", "shaw"]
    right = {name: {10: 100, 20: 90 + at, 100: 50} for at, name in enumerate(names)}
    right |= {name: {10: 100, 20: 100, 100: 100} for name in ("ideal_sh", "lbpe_sh", "latch:t5")}
    right["rope"] = {10: 100, 20: 20, 100: 0}
    records = [raw(name, seed, own) for name, own in right.items() for seed in range(3)]
    text = filled(EMPTY, tables(load([save(*records)])[0], known), known)
    _, *rows = table(text)
    first = [row[0] for row in rows]
    assert first[:6] == ["shaw", "t5", "relative", "nope", "rope", "5 others"]
    assert {*first[6:]} == {"ideal_sh (oracle)", "lbpe_sh † (receives the length)"}
    block = text.partition(BEGIN)[2].partition(END)[0]
    assert sum(len(line.split()) for line in block.splitlines() if "|" not in line) <= 130


def test_costs_stand_at_each_measured_length(made, known, monkeypatch):
    own = {"protocol": "quick", "baseline": "rope", "decode": None, "where": ""}
    found = {("rope", 10): 1.0, ("rope", 128): 1.0, ("alibi", 10): 0.94, ("alibi", 128): 1.31}
    some = [Measured(encoding=e, length=n, train=t, **own) for (e, n), t in found.items()]
    monkeypatch.setattr("leaderboard.render.readme.measured", lambda: some)
    text = filled(EMPTY, made, known)
    costs = {row[0]: row[-1] for row in table(text)}
    assert (costs["rope"], costs["alibi"], costs["nope"]) == ("1.0x, 1.0x", "0.9x, 1.3x", "-, -")
    assert "over rope's, at 10 and 128 tokens" in text


def test_the_picture_marks_an_encoding_that_receives_the_length(made, known):
    name, svg = picture(made, known)
    assert name.endswith(".svg")
    texts = [node.text for node in ElementTree.fromstring(svg).iter() if node.text]
    assert "Copy: trained on up to 10 digits, tested up to 100 (2 to 3 seeds)" in texts
    assert {"alibi", "rope", "nope", "lbpe_sh (receives the length)"} <= {*texts}
    assert picture([], known) is None


def test_a_readme_without_its_comments_stays(made, known):
    assert filled("# Name\n", made, known) == "# Name\n"
    assert filled(EMPTY, [], known) == EMPTY


@pytest.mark.parametrize("text", [f"{BEGIN}\n", f"{END}\n", f"{END}\n{BEGIN}\n"])
def test_one_comment_alone_is_refused(made, known, tmp_path, text):
    page, readme = tmp_path / "leaderboard" / "LEADERBOARD.md", tmp_path / "README.md"
    readme.write_text(text, encoding="utf-8")
    page.parent.mkdir()
    for do in (write_markdown, stale):
        with pytest.raises(ValueError, match=r"README.md: a README needs <!-- made by"):
            do(made, page, known)
    readme.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"README.md: 'utf-8' codec"):
        stale(made, page, known)


def test_a_readme_that_is_out_of_date_is_refused(made, known, tmp_path):
    page, readme = tmp_path / "leaderboard" / "LEADERBOARD.md", tmp_path / "README.md"
    page.parent.mkdir()
    readme.write_text(EMPTY, encoding="utf-8")
    write_markdown(made, page, known)
    assert stale(made, page, known) == []
    readme.write_text(EMPTY, encoding="utf-8")
    assert [line.split(" ")[0] for line in stale(made, page, known)] == [str(readme)]
