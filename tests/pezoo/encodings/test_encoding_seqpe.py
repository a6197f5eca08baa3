import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

from pezoo import Context, Memo, PositionError, Shape, attention, make

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)
POS = torch.tensor([[-1, -1, 0, 1, 40, 705, 0, 1, 12]])  # left padding, then two documents


def made(text="seqpe(digits=3)"):
    encoding = make(text, SHAPE).double()
    for one in encoding.parameters():
        nn.init.normal_(one, std=0.5)
    return encoding.requires_grad_(False)


@torch.no_grad()
def theirs(e, position):
    """SequentialPE of the authors, and their pe_qk, with torch's encoder layer."""
    x = [e.e[int(d)] + e.f[n] for n, d in enumerate(f"{position:03}")]
    x = torch.stack([*x, e.g[0]])[None]
    causal = nn.Transformer.generate_square_subsequent_mask(4, dtype=D)
    for own in e.encoder:
        layer = nn.TransformerEncoderLayer(
            8, 2, 32, 0, lambda x: gelu(x, approximate="tanh"), norm_first=True, batch_first=True
        ).double()
        pairs = [("self_attn.in_proj_", "qkv."), ("self_attn.out_proj.", "mix.")]
        pairs += [("linear1.", "up."), ("linear2.", "down.")]
        pairs += [("norm1.", "norm_1."), ("norm2.", "norm_2.")]
        state = own.state_dict()
        layer.load_state_dict({a + k: state[b + k] for a, b in pairs for k in ("weight", "bias")})
        x = layer(x, src_mask=causal)
    return e.both(e.out(e.norm(x[0, -1]))).view(2, 2, 4)  # queries and keys, heads, K


@pytest.mark.parametrize("steps", [[9], [1] * 9])
def test_it_is_the_authors_code(steps):
    encoding, memo, end, kept = made(), Memo(), 0, []
    q, k = torch.randn(1, 2, 9, 4, dtype=D), torch.randn(1, 1, 9, 4, dtype=D)
    rows = {p: theirs(encoding, p) for p in (0, 1, 12, 40, 705)}
    for step in steps:
        start, end = end, end + step
        ctx = encoding.prepare(Context(POS[:, :end], n_new=step, memo=memo)).at(1, None)
        new, keys = encoding.transform(q[:, :, start:end], k[:, :, start:end], ctx)
        kept.append(keys)
        got = new @ torch.cat(kept, 2).mT / 2
        for h in range(2):
            for i in range(max(start, 2), end):
                for j in range(2, i + 1):
                    p, r = rows[int(POS[0, i])][0, h], rows[int(POS[0, j])][1, h]
                    want = (q[0, h, i] @ k[0, 0, j] + p @ r) / 2
                    assert got[0, h, i - start, j].item() == pytest.approx(float(want), abs=1e-10)


def test_without_the_last_layer_it_is_nope():
    encoding, (q, k, v) = made(), torch.randn(3, 1, 2, 9, 4, dtype=D)
    for one in encoding.both.parameters():
        one.zero_()
    want = attention(q, k, v, make("nope", SHAPE), POS)
    torch.testing.assert_close(attention(q, k, v, encoding, POS), want)


def test_positions_of_more_digits_are_refused():
    encoding = make("seqpe(digits=2)", SHAPE)
    encoding.prepare(Context(torch.tensor([[99]])))
    with pytest.raises(PositionError, match=r"positions 0\.\.99, was given position 100"):
        encoding.prepare(Context(torch.tensor([[100]])))


def test_gradients():
    encoding = made("seqpe(digits=2,layers=1)").requires_grad_(True)
    names = ["e", "f", "g", "encoder.0.qkv.weight", "both.weight"]
    values = [encoding.get_parameter(name).detach().clone().requires_grad_() for name in names]

    class Rows(nn.Module):
        def forward(self, pos):
            return self.e.rows(pos)

    rows = Rows()
    rows.e = encoding

    def called(*given):
        named = {f"e.{name}": x for name, x in zip(names, given, strict=True)}
        return torch.func.functional_call(rows, named, (torch.tensor([3, 41]),))

    assert torch.autograd.gradcheck(called, values, fast_mode=True)


def test_the_start_is_that_of_the_authors_code():
    encoding = make("seqpe", SHAPE.replaced(d_model=128, d_head=64))
    for name, one in encoding.named_parameters():
        if one.dim() > 1 and len(one) > 1:
            assert one.std().item() == pytest.approx(0.02, rel=0.1)
        elif name.endswith("bias"):
            assert not one.any()
    assert encoding.digits == 5  # of positions below 20,000
