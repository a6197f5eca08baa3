"""That what an encoding says of its positional relation is what it computes."""

from __future__ import annotations

import torch

from pezoo.prf import PRFError, prf_of
from pezoo.testing.probe import (
    Factory,
    Inputs,
    build,
    context,
    first_layer,
    inputs,
    relation,
    require,
    tokens,
)

TOLERANCE = 1e-5


def check_prf(factory: Factory) -> None:
    """Pairs of positions with equal `prf` get equal logits from equal queries and keys."""
    encoding, n = build(factory), 9
    try:
        phi = prf_of(encoding, n, scale=n // 2, relation=relation)
    except PRFError as error:
        raise AssertionError(str(error)) from error
    if phi is None:
        return
    if phi.is_floating_point():
        sums = phi.sum(-1)
        require(bool((sums - 1).abs().max() < TOLERANCE), "a distribution of prf does not sum to 1")
    one = inputs(encoding, 1, 1, torch.float32)
    given = Inputs(one.x.expand(1, n, -1), *(y.expand(-1, -1, n, -1) for y in one[1:]))
    with torch.no_grad():
        layer = first_layer(encoding, context(tokens(1, 1).expand(1, n)), given)
        logits = layer.logits[0].flatten(1)  # (H, pairs)
    later = torch.ones(n, n, dtype=torch.bool).triu(1).flatten()
    kinds = torch.unique(phi.flatten(0, 1), dim=0, return_inverse=True)[1]
    if encoding.causal_only:
        logits, kinds = logits[:, ~later], kinds[~later]
    for kind in kinds.unique():
        same = logits[:, kinds == kind]
        gap = float((same - same[:, :1]).nan_to_num(0.0, 0.0).abs().max())
        require(
            gap <= TOLERANCE,
            f"prf gives {int((kinds == kind).sum())} pairs of positions the same value, but their "
            f"logits for equal queries and keys differ by {gap:.2g}",
        )
