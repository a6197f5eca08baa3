"""From features to the probabilities of each cursor's moves, and of copies.

The copy branch: a cursor may take the position of an earlier token (Sections 5.0.3-5.0.4).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import one_hot

from pezoo.cursors.options import CursorOptions
from pezoo.functional import at_least_float32, orthogonal_
from pezoo.initial import owned
from pezoo.kernels.histogram import Copy

WIDTH = 16  # of the copy attention's queries and keys
MATCH = 6.0  # the norm of each row of the copy attention's weights where it starts by matching
TIE = 1e-4  # relative difference up to which probabilities are equal in mode snapped


class GateHead(nn.Module):
    """Pr(reset) by a sigmoid and Pr(step) by a softmax, per cursor (Section 5.1).

        logits = scale (W features + b) + noise

    features (B, T, size) -> reset (B, T, C), moves (B, T, C, J). Query cursors come first, then key
    cursors. The bias b starts at reset_bias for every reset, at key_bias for the +1 step of key
    cursors, and at query_bias for one step of each query cursor that is not `undecided`, the steps
    in turn: resets start rare, key cursors count tokens, and query cursors move in different ways.
    """

    def __init__(self, cursors: int, options: CursorOptions, undecided: Sequence[int] = ()) -> None:
        super().__init__()
        self.cursors, self.choices = cursors, 2 * options.stride + 2
        self.scale = options.gate_scale
        self.linear = owned(nn.Linear(options.units, cursors * self.choices))
        with torch.no_grad():
            bias = self.linear.bias.view(cursors, self.choices)
            bias[:, 0] += options.reset_bias
            bias[cursors // 2 :, 1] += options.key_bias
            walking = [c for c in range(cursors // 2) if c not in undecided]
            step = torch.arange(len(walking)) % (self.choices - 1)
            bias[walking, 1 + step] += options.query_bias

    def forward(
        self, features: Tensor, noise: Tensor | None = None, snapped: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Compute gates in at least float32; `snapped` rounds each to its most probable value."""
        logits = at_least_float32(self.linear(features))
        logits = rearrange(logits, "b t (c j) -> b t c j", c=self.cursors)
        logits = logits * self.scale if noise is None else logits * self.scale + noise
        # torch's softmax over a short last axis is twenty times slower than over a leading one.
        logits = logits.movedim(-1, 0).contiguous()  # (1 + J, B, T, C)
        reset, moves = logits[0].sigmoid(), logits[1:].softmax(0).movedim(0, -1)
        if snapped:
            reset = (reset > 0.5).to(reset.dtype)
            moves = one_hot(moves.argmax(-1), self.choices - 1).to(moves.dtype)
        return reset, moves


class Seen(NamedTuple):
    """State for decoding: the copy attention's keys (B, C, S, WIDTH) and the token mask."""

    keys: Tensor
    mask: Tensor | None  # (B, S) bool; None where all columns are tokens


class CopyBranch(nn.Module):
    """p_copy: causally masked self-attention over earlier tokens, with a slot for "no copy".

        p_copy(t, .) = softmax([<q_t, k_0>, ..., <q_t, k_{t-1}>] / sqrt(WIDTH), null_t)

    q reads the token and the controller's features, k the token; `null` starts at 4, so that
    copies start rare on short texts. Token number j (from 0) has offset j + 1, as a cursor that
    only counts; the matching key cursors are fixed to that. In mode snapped the most probable
    source is taken, and the first among equals.
    """

    def __init__(self, width: int, cursors: int, options: CursorOptions) -> None:
        super().__init__()
        self.cursors = cursors
        self.query = owned(nn.Linear(width + options.units, cursors * WIDTH))
        self.key = owned(nn.Linear(width, cursors * WIDTH))
        self.null = owned(nn.Linear(options.units, cursors))
        nn.init.constant_(self.null.bias, 4.0)

    def forward(
        self,
        x: Tensor,
        features: Tensor,
        mask: Tensor | None,
        seen: Seen | None,
        snapped: bool,
        noise: Tensor | None = None,
    ) -> tuple[Copy, Seen]:
        """x (B, T, D), features (B, T, size), mask (B, T) -> none (B, T, C), source (B, T, C, S).

        The last axis of `source` numbers tokens, without columns of padding. The mask is False at
        padding; None without padding.
        """
        q = self.query(torch.cat([x, features.to(x.dtype)], -1))
        q, k = (rearrange(y, "b t (c k) -> b c t k", c=self.cursors) for y in (q, self.key(x)))
        if seen is not None:
            mask = _joined(seen, mask, k)
            k = torch.cat([seen.keys, k], 2)  # in the order that the product reads
        t, s = q.shape[2], k.shape[2]
        column = torch.arange(s, device=x.device)
        visible = (column < column[s - t :, None])[None]  # (1, T, S) earlier tokens
        if mask is not None:
            visible = visible & mask[:, None]
        scores = (q @ k.mT).transpose(1, 2) * WIDTH**-0.5  # (B, T, C, S)
        null = self.null(features.to(x.dtype))
        none, source = self.chances(scores, null, visible[:, :, None], noise, snapped)
        return Copy(none, source if mask is None else _by_number(source, mask)), Seen(k, mask)

    def chances(
        self, scores: Tensor, null: Tensor, visible: Tensor, noise: Tensor | None, snapped: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute Pr(no copy) and Pr(source): scores (B, T, C, S), null (B, T, C)."""
        scores = scores.masked_fill(~visible, -torch.inf)
        p = at_least_float32(torch.cat([scores, null[..., None]], -1)).softmax(-1)
        if snapped:
            p = one_hot(_first_of_the_likeliest(p), p.shape[-1]).to(p.dtype)
        return p[..., -1], p[..., :-1]


class GatedCopyBranch(CopyBranch):
    """A copy branch with a gate for copying, and a separate softmax over sources.

        p_copy(t, s) = g_t softmax_s(<q_t, k_s> / sqrt(WIDTH)), g_t = sigmoid(-scale null_t + noise)

    `null` starts at minus the bias of the resets, so that copies start rare. q and k start with the
    same orthogonal weights on the tokens, so that the softmax starts by finding equal tokens. In
    one softmax, a strong match outweighs the slot for "no copy"; here a cursor can copy at one
    landmark and continue from there, whatever else matches.
    """

    def __init__(self, width: int, cursors: int, options: CursorOptions) -> None:
        super().__init__(width, cursors, options)
        self.scale = options.gate_scale
        nn.init.constant_(self.null.bias, -options.reset_bias)
        with torch.no_grad():
            for own in self.key.weight.view(cursors, WIDTH, width):
                orthogonal_(own, MATCH)
            self.query.weight[:, :width] = self.key.weight
            self.query.bias.zero_()
            self.key.bias.zero_()

    def chances(
        self, scores: Tensor, null: Tensor, visible: Tensor, noise: Tensor | None, snapped: bool
    ) -> tuple[Tensor, Tensor]:
        # Without earlier tokens, the softmax is over all columns, and the gate is closed below.
        hidden = ~visible & visible.any(-1, keepdim=True)
        where = at_least_float32(scores.masked_fill(hidden, -torch.inf)).softmax(-1)
        logits = -self.scale * at_least_float32(null)
        gate = (logits if noise is None else logits + noise).sigmoid()
        if snapped:
            where = one_hot(_first_of_the_likeliest(where), where.shape[-1]).to(where.dtype)
            gate = (gate > 0.5).to(gate.dtype)
        gate = gate * visible.any(-1)
        return 1 - gate, where * gate[..., None]


def _joined(seen: Seen, mask: Tensor | None, k: Tensor) -> Tensor | None:
    """Join the masks of earlier columns and of the new ones k (B, C, T, WIDTH)."""
    if mask is None and seen.mask is None:
        return None
    before, new = (
        torch.ones(len(x), x.shape[2], dtype=torch.bool, device=x.device) if own is None else own
        for x, own in ((seen.keys, seen.mask), (k, mask))
    )
    return torch.cat([before, new], 1)


def _first_of_the_likeliest(p: Tensor) -> Tensor:
    """Return the first of the most probable, p (..., S) -> (...).

    Equal tokens have equal keys; rounding, which differs in decoding, must not choose among them.
    """
    return (p >= (1 - TIE) * p.amax(-1, keepdim=True)).to(torch.int8).argmax(-1)


def _by_number(source: Tensor, mask: Tensor) -> Tensor:
    """Move column j of source (B, T, C, S) to the number of its token among the tokens."""
    number = (mask.cumsum(1) - 1).clamp(min=0)[:, None, None].expand_as(source)
    return torch.zeros_like(source).scatter_add(-1, number, source)
