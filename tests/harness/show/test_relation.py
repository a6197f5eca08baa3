"""Pictures of the positional relation."""

import torch

from harness.show.relation import relation_picture


def test_distances_are_one_panel(decoder, example):
    (picture,) = relation_picture(decoder("rope"), example())
    values = picture.values[0]
    assert picture.panels == ("all layers",)
    assert values[5, 2] == 3
    assert bool(values.triu(1).nan_to_num(-1.0).equal(-torch.ones(9, 9).triu(1)))


def test_a_learned_relation_has_its_three_most_probable_values_in_each_layer(decoder, example):
    model = decoder("lbpe_sh(values=5)")
    (picture,) = relation_picture(model, example())
    assert picture.panels[:4] == (
        "layer 0, rank 1", "layer 0, rank 2", "layer 0, rank 3", "layer 1, rank 1",
    )  # fmt: skip
    assert picture.group == 3
    phi = model.encoding.prf(9, scale=4, layer=1)
    order = phi[7, 3].argsort(descending=True)
    assert picture.values[3:, 7, 3].tolist() == order[:3].tolist()


def test_a_task_tells_an_ideal_relation(decoder, example):
    (picture,) = relation_picture(decoder("ideal_sh"), example())
    assert picture.values[0, 5, 1] == 1  # the fixture's task: copy(aligned=4)
    assert picture.values[0, 3].nansum() == 0


def test_nothing_where_there_is_no_relation(decoder, example):
    assert relation_picture(decoder("nope"), example()) == []
    assert relation_picture(decoder("randomized"), example()) == []
