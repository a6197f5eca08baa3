"""PRISM with three cursors a head, one that looks tokens up and two that walk: one setting."""

from pezoo.base import Shape
from pezoo.encodings.prism_spectral import PRISMSpectral
from pezoo.registry import register


@register("prism_trio")
class PRISMTrio(PRISMSpectral):
    """Use prism_spectral with one cursor that looks tokens up and two that walk, in every head.

    The formulas are prism_spectral's; what is chosen here is where training starts, for all tasks
    alike:

        looks up   begins undecided; a gate says when it takes the position of an earlier token, a
                   softmax, which begins with equal tokens, of which. Its key cursor counts tokens
        walk       begin with one of the steps +1, -1, +2, -2 and 0 each, in turn over the heads.
                   Their key cursors begin by counting and may learn otherwise

    Gates read the present token and which tokens have occurred (the latch of
    pezoo.cursors.controllers), so that they cannot count: cursors must. The highest frequency is
    pi, which tells odd from even offsets; each pair of cursors learns how much it weighs, from 4
    times the others' weight on. The pairs' own weights alpha start at 1.5.

    Example: of 5839472,3= the looking cursor takes the position of the 3 when it reads "3" after
    the comma, and steps +1 from then on.
    Shapes: those of pezoo.cursors.encoding.
    Options: d_pe, the width of a stream; hidden, the units of the gate network.
    Mode "snapped": gates are rounded, so that every cursor is an integer counter.
    Errors: ValueError without ctx.x or for an option out of range.

    Source: after Lee 2025, "Position as Probability". Deviations: those of prism_spectral, and a
    gate beside the softmax of copies instead of one of its slots (Section 5.0.4). How the setting
    was chosen, and what it does on fresh seeds: docs/findings/one-setting.md.
    """

    summary = "prism_spectral, a cursor that looks up and two that walk"
    paper = "after Lee 2025"
    version = 2

    def __init__(self, shape: Shape, *, d_pe: int = 32, hidden: int = 100) -> None:
        super().__init__(
            shape,
            cursors=3,
            d_pe=d_pe,
            hidden=hidden,
            controller="latch",
            window=1,
            stride=2,
            top=1.0,
            alpha=1.5,
            top_weight=4.0,
            query_bias=3.0,
            copy_every=3,
            copy_gate=True,
        )
