"""Packed documents: what training computes of each is what it computes of it alone."""

from dataclasses import replace

import pytest
import torch

from pezoo.base import Context, Pass, Shape
from pezoo.registry import make

D = torch.float64
SHAPE = Shape(6, 2, 4, 2, 8)
QUIET = "gate_noise=0,state_noise=0"
TEXTS = [
    "prism_2025(cursors=1,d_pe=4,hidden=5,controller=gru,state_noise=0.5,gate_noise=0.5)",
    "prism_2025(cursors=1,d_pe=4,hidden=5,controller=latch,copy_every=1,gamma=1.5)",
    "prism_2025(cursors=2,d_pe=4,hidden=5,controller=latch)",
    f"prism_spectral(cursors=1,d_pe=4,hidden=5,controller=latch,window=2,copy_every=2,{QUIET})",
]
LENGTHS = ((3, 1, 5), (7, 2))  # of each row's documents
POS = torch.tensor([[p for n in row for p in range(n)] for row in LENGTHS])


def streams(encoding, x, pos, drawn):
    """(B, T, 2, H, C d_pe) of the first layer."""
    ctx = encoding.prepare(Pass(pos, x=x, drawn=drawn))
    return torch.stack(encoding.memory(0, ctx).streams[0], 2)


def alone(drawn, row, columns):
    """The noise of one document."""
    return {name: y[row, columns][None] for name, y in drawn.items() if name.endswith("noise")}


@pytest.mark.parametrize("text", TEXTS)
def test_values_and_gradients_are_those_of_each_document_alone(text):
    torch.manual_seed(0)
    encoding = make(text, SHAPE).double().train()
    x = torch.randn(2, 9, 6, dtype=D)
    drawn = encoding.draw(Context(POS, x=x), generator=torch.manual_seed(1))
    packed = streams(encoding, x, POS, drawn)
    packed.sin().sum().backward()
    got = {n: p.grad.clone() for n, p in encoding.named_parameters() if p.grad is not None}
    encoding.zero_grad()
    for row, lengths in enumerate(LENGTHS):
        for end, n in zip(torch.tensor(lengths).cumsum(0).tolist(), lengths, strict=True):
            own = slice(end - n, end)
            one = streams(encoding, x[row, own][None], POS[row, own][None], alone(drawn, row, own))
            torch.testing.assert_close(packed[row, own], one[0])
            one.sin().sum().backward()
    assert got
    for name, parameter in encoding.named_parameters():
        if name in got:
            torch.testing.assert_close(got[name], parameter.grad)


def test_a_part_of_the_batch_and_columns_more_change_nothing():
    encoding = make(TEXTS[0], SHAPE).double().train()
    x = torch.randn(2, 9, 6, dtype=D)
    drawn = encoding.draw(Context(POS, x=x), generator=torch.manual_seed(1))
    whole = streams(encoding, x, POS, drawn)
    part = {name: y[1:] if y.dim() > 1 else y for name, y in drawn.items()}
    torch.testing.assert_close(streams(encoding, x[1:], POS[1:], part), whole[1:])
    wider = {
        n: torch.cat([y, y.new_zeros(2, *y.shape[1:])]) for n, y in drawn.items() if y.dim() < 2
    }
    torch.testing.assert_close(streams(encoding, x, POS, drawn | wider), whole)


def test_nothing_is_drawn_for_documents_where_there_is_one_a_row():
    encoding = make(TEXTS[1], SHAPE).double().eval()
    x = torch.randn(2, 9, 6, dtype=D)
    assert not encoding.draw(Context(torch.arange(9)[None], x=x))
    padded = (torch.arange(9)[None] - torch.tensor([[0], [3]])).clamp(min=-1)
    assert {*encoding.draw(Context(padded, x=x))} == {"cursors.order", "cursors.back"}


def test_decoding_within_the_last_document_reads_no_token_again(monkeypatch):
    encoding = make(TEXTS[1], SHAPE).double().eval()
    (layer,), read = encoding.layers, []
    features = layer.features
    monkeypatch.setattr(layer, "features", lambda x, *a: read.append([*x.shape]) or features(x, *a))
    x, ctx = torch.randn(2, 12, 6, dtype=D), Context(POS)
    pos = torch.cat([POS, torch.tensor([[5, 6, 0], [2, 3, 0]])], 1)
    for end, new in ((9, 9), (10, 1), (11, 1), (12, 1)):
        here = replace(ctx, pos=pos[:, :end], x=x[:, end - new : end], n_new=new)
        with torch.no_grad():
            encoding.prepare(here)
    assert [sizes[:2] for sizes in read] == [[6, 7], [2, 1], [2, 1], [8, 7]]
