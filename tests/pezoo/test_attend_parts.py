"""`attend` in parts: what is computed for some queries at a time equals one whole pass."""

import pytest
import torch

import pezoo
from pezoo.adapters import attend, attention_mask, parts
from pezoo.testing import SHAPE, build, context, tokens

OPTIONS = (
    "self_extend(window=3,group=2,rope_parameters=dynamic(factor=2))",
    "rerope(window=3,leak=0.5,log_n=true,rope_parameters=yarn(factor=auto))",
    "window(size=4,sinks=2):rope",
    "dual_chunk(chunk=3,window=2)",
    "window(chunk=4):rerope(window=3)",
    "layers(every=2):window(size=4):rope,rerope(window=3)",
    "ssmax:self_extend(window=3)",
    "randomized:alibi",
)
PLAIN = [name for name in pezoo.names() if not name.startswith("prism")]
PADDED = [[*range(11)], [-1, -1, *range(9)]]


@pytest.mark.parametrize("text", [*PLAIN, *OPTIONS, "prism(d_pe=16,hidden=12)"])
@pytest.mark.parametrize("positions", [PADDED[:1], PADDED], ids=["plain", "padded"])
def test_parts_equal_the_whole(text, positions, monkeypatch):
    encoding = build(lambda shape: pezoo.make(text, shape)).eval()
    draws = torch.Generator().manual_seed(0)
    pos = torch.tensor(positions)
    b, t = max(2, len(pos)), pos.shape[1]
    x = torch.randn(b, t, SHAPE.d_model, generator=draws)
    heads = (b, SHAPE.n_heads, t, SHAPE.d_head)
    q, k, v = (torch.randn(heads, generator=draws) for _ in range(3))
    weight = torch.randn(SHAPE.d_model, SHAPE.d_model, generator=draws)
    given = context(tokens(b, t), pos, x=x)

    def run():
        with torch.no_grad():
            ctx = encoding.prepare(given).at(1, x, weight)
            mask = attention_mask(ctx) if len(pos) > 1 else None
            return attend(encoding, *encoding.transform(q, k, ctx), v, ctx, mask)

    torch.manual_seed(0)
    whole = run()
    largest = []
    monkeypatch.setattr(parts, "WHOLE", 1)
    monkeypatch.setattr(parts, "PART", 3 * b * SHAPE.n_heads * t)  # three queries
    keep = pezoo.adapters.attend_at_once
    monkeypatch.setattr(
        pezoo.adapters,
        "attend_at_once",
        lambda e, q, *r, **o: largest.append(q.shape[2]) or keep(e, q, *r, **o),
    )
    torch.manual_seed(0)
    torch.testing.assert_close(run(), whole, atol=1e-5, rtol=0)
    assert largest in ([3, 3, 3, 2], [11]), largest  # [11]: rotation alone
