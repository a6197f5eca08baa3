"""The README's first table is made from the records, and `check` refuses one that is not."""

import re
from dataclasses import replace

import pytest

from leaderboard import catalog
from leaderboard.record.read import load
from leaderboard.render.markdown import stale, write_markdown
from leaderboard.render.readme import BEGIN, END, filled
from leaderboard.stats.tables import tables

EMPTY = f"# Name\n\n{BEGIN}\nwhatever\n{END}\n\nMore.\n"


@pytest.fixture
def known():
    return catalog.read()


@pytest.fixture
def made(raw, save, known):
    """alibi is right to twice the length on both seeds, rope on one of two, nope not at all."""
    far, near, none = {10: 100, 15: 95, 20: 90}, {10: 100, 15: 95, 20: 20}, {10: 5, 15: 0, 20: 0}
    records = [
        raw("alibi", 0, far), raw("alibi", 1, far), raw("rope", 0, far), raw("rope", 1, near),
        raw("nope", 0, none), raw("nope", 1, none), raw("alibi", 0, near, task="reverse"),
    ]  # fmt: skip
    return tables(load([save(*records)])[0], known)


def test_far_encodings_have_rows_and_the_others_share_one(made, known):
    lines = filled(EMPTY, made, known).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    head, _, *rows = [own[:-1] for own in cells]
    assert head == ["encoding", "copy", "reverse (1 of 3 ran)"]
    assert rows[0] == ["seeds", "2", "1"]
    assert sorted(rows[1:]) == [
        ["1 other", "0", "not run"],
        ["alibi", "≥2x", "1.5x"],
        ["rope", "1.5x", "not run"],
    ]
    assert "The others: nope." in lines
    assert "on average over 1 to 2 seeds" in lines[4]
    assert [lines[0], lines[-1]] == ["# Name", "More."]


def test_of_many_encodings_the_farthest_have_rows(raw, save, known):
    near, far = {10: 100, 15: 95, 20: 20}, {10: 100, 15: 95, 20: 95}
    names = ["alibi", "fire", "geometric", "kerple", "lbpe", "nope", "relative", "rope"]
    names += ["shaw", "t5"]
    records = [raw(name, 0, near, task=task) for name in names for task in ("copy", "reverse")]
    records.append(raw("sinusoidal", 0, far))  # has no place, as it lacks a task
    text = filled(EMPTY, tables(load([save(*records)])[0], known), known)
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 12
    assert [line.split()[1] for line in rows[-2:]] == ["sinusoidal", "1"]


def test_records_without_times_and_unlike_others(record, known):
    records = []
    for name, right in (("rope", 100), ("t5", 20), ("nope", 5)):
        made = record(name, right={10: right, 15: right})
        records.append(made.model_copy(update={"cost": replace(made.cost, cpu_seconds=None)}))
    text = filled(EMPTY, tables(records, known), known)
    assert "| 2 others | 0 | - |" in re.sub(" +", " ", text)
    records.append(record("fire", right={10: 95, 15: 20}))
    text = filled(EMPTY, tables(records, known), known)
    assert "| 3 others | 0 to 1x | 35 |" in re.sub(" +", " ", text)


def test_it_names_the_processors(record, known):
    records = []
    for name, cpu in (("rope", "One"), ("t5", "Other"), ("fire", "One")):
        made = record(name, right={10: 100, 15: 100})
        records.append(made.model_copy(update={"env": replace(made.env, cpu=cpu)}))
    assert "the median over tasks, on One or Other." in filled(EMPTY, tables(records, known), known)
    hostile = records[0].model_copy(update={"env": replace(made.env, cpu=f"x {END} | <b>")})
    text = filled(EMPTY, tables([hostile], known), known)
    assert filled(text, tables([hostile], known), known) == text
    assert "<b>" not in text


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
