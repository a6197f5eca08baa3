"""Optional members of an encoding, which models do not call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from pezoo.context import Context, Pass
from pezoo.pictures import Picture


@dataclass(frozen=True)
class ParamGroup:
    """Parameters with optimiser settings of their own; None keeps the trainer's."""

    params: list[nn.Parameter]
    lr: float | None = None
    betas: tuple[float, float] | None = None
    weight_decay: float | None = None


class Extras:
    """Optional attributes and methods of an `Encoding`, with the defaults of most encodings.

    They serve the registry, trainers, `pezoo show` and `pezoo explain`.
    """

    version: ClassVar[int] = 1  # increase it when results change, so that old records stay apart
    wraps: ClassVar[str | None] = None  # the encoding that a wrapper wraps by default
    also: ClassVar[tuple[tuple[str, str], ...]] = ()  # aliases and their specs
    prf_text: ClassVar[str] = ""  # its `prf` in words
    modes: tuple[str, ...] = ()  # other ways to run trained weights, see Pass.mode

    random_distances: bool = False  # True: `randomized` draws distances around it by default
    heads_with_positions: int | None = None  # only the first heads have positions; None: all
    needs_scale: bool = False  # True: reads ctx.scale
    needs_slots: bool = False  # True: reads ctx.slots, which some tasks supply
    rope_within: int | None = None  # turns pairs; up to so many tokens its logits are rope's
    oracle: bool = False  # True: receives part of the task's solution
    control: bool = False  # True: shows what a part of another encoding does alone; not ranked

    def prf(self, ctx: Context) -> Tensor | None:
        """Return the positional relation function phi(i, j) of query i and key j.

        ctx.pos (1, S) -> (S, S) int64, or (S, S, values) float, a distribution over kinds of pairs.
        Pairs with equal phi get equal logits from equal q and k. None if logits depend on content,
        on chance, or on the causal mask alone. ctx holds no ids, padding or cache; it may hold
        `scale`, `task_prf` and `layer`.
        """
        return None

    def param_groups(self) -> list[ParamGroup]:
        """Return parameters that need their own optimiser settings."""
        return []

    def penalty(self) -> Tensor | None:
        """Return a scalar that the trainer adds to the loss, or None."""
        return None

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        """Return pictures of the encoding's state after a pass over one sequence without padding.

        layers[i] is the ctx passed to `transform` in layer i.
        """
        return []
