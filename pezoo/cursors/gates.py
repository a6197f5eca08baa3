"""Gates: from features to the probabilities of each cursor's moves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import one_hot

from pezoo.cursors.options import CursorOptions
from pezoo.functional import at_least_float32


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
        self.linear = nn.Linear(options.hidden, cursors * self.choices)
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
