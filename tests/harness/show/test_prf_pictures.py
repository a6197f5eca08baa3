"""Pictures of the positional relation."""

import pytest
import torch

from harness.settings import catalog
from harness.show.prf import prf_maps, prf_picture
from pezoo.base import Context, Shape
from pezoo.registry import make, names


def test_distances_are_one_panel(decoder, example):
    (picture,) = prf_picture(decoder("rope"), example())
    values = picture.values[0]
    assert picture.panels == ("all layers",)
    assert values[5, 2] == 3
    assert bool(values.triu(1).nan_to_num(-1.0).equal(-torch.ones(9, 9).triu(1)))


def test_a_learned_relation_has_its_three_most_probable_values_in_each_layer(decoder, example):
    model = decoder("lbpe_sh(values=5)")
    (picture,) = prf_picture(model, example())
    assert picture.panels[:4] == (
        "layer 0, rank 1", "layer 0, rank 2", "layer 0, rank 3", "layer 1, rank 1",
    )  # fmt: skip
    assert picture.group == 3
    prf = model.encoding.prf(Context(pos=torch.arange(9)[None], scale=torch.tensor([4]), layer=1))
    order = prf[7, 3].argsort(descending=True)
    assert picture.values[3:, 7, 3].tolist() == order[:3].tolist()


def test_a_task_tells_an_ideal_relation(decoder, example):
    (picture,) = prf_picture(decoder("ideal_sh"), example())
    assert picture.values[0, 5, 1] == 1  # the fixture's task: copy(aligned=4)
    assert picture.values[0, 3].nansum() == 0


def test_nothing_where_there_is_no_relation(decoder, example):
    assert prf_picture(decoder("nope"), example()) == []
    assert prf_picture(decoder("randomized"), example()) == []


def test_a_page_has_what_the_encoding_says_of_its_pairs():
    drawn = {name: prf_maps(name) for name in names()}
    assert {"nope", "prism", "randomized", "geometric"} <= {
        n for n, one in drawn.items() if not one
    }
    for name in ("rope", "shaw", "t5", "hard_alibi", "learned"):
        ((title, matrix),) = drawn[name].panels
        prf = make(name, Shape(16, 2, 8, 1, 9)).prf(Context(pos=torch.arange(9)[None]))
        assert (title, [list(row) for row in matrix]) == ("", prf.tolist())
        assert "learned" not in drawn[name].words


def test_a_page_says_that_a_learned_relation_is_untrained_and_draws_it_again_alike():
    before = torch.get_rng_state()
    one = prf_maps("lbpe_sh")
    assert torch.get_rng_state().equal(before)
    assert [title for title, _ in one.panels] == ["most probable", "second", "third"]
    assert "before training" in one.words
    assert "The scale n is 4." in one.words
    assert one == prf_maps("lbpe_sh")


def test_a_page_draws_an_ideal_relation_of_copying():
    for name in ("ideal", "ideal_sh"):
        one = prf_maps(name)
        ((_, matrix),) = one.panels
        assert {(i, j) for i in range(9) for j in range(9) if matrix[i][j]} == {
            (4, 0), (5, 1), (6, 2), (7, 3),
        }  # fmt: skip
        assert "The task is copy: 4 digits" in one.words


def test_the_leaderboard_has_the_relations_of_all_encodings():
    known = catalog.read_catalog().encodings
    assert {name: one.prf_maps for name, one in known.items()} == {
        name: prf_maps(name) for name in known
    }, "run python -m harness.show.prf"


@pytest.mark.parametrize("text", ["", "[]", '{"alibi": [1]}', '[["<b>x", NaN]]'])
def test_a_damaged_file_of_relations_is_named(monkeypatch, tmp_path, text):
    path = tmp_path / "maps.json"
    path.write_text(text)
    monkeypatch.setattr(catalog, "PRF_MAPS", path)
    with pytest.raises(ValueError, match=r"maps.json is damaged; `python -m harness.show.prf`"):
        catalog.read_catalog()
