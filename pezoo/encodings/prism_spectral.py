"""PRISM without histograms: the characteristic function of a cursor's position, one recurrence."""

from __future__ import annotations

from collections.abc import Sequence

from pezoo.base import Context, Shape
from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.pictures import pictures
from pezoo.cursors.spectrum import Spectrum
from pezoo.pictures import Picture
from pezoo.registry import register


@register("prism_spectral")
class PRISMSpectral(CursorEncoding):
    """PRISM's cursors, followed frequency by frequency instead of offset by offset.

    PRISM's stream sum_d h[d] e^{iwd} is the characteristic function phi(w) of the cursor's
    position. Without sharpening it obeys one complex linear recurrence per frequency, so that no
    histogram is needed, no support ends, and the state has a constant size:

        phi_t(w) = M_t(w) ((1 - r_t) phi_{t-1}(w) + r_t),  M_t(w) = sum_s Pr(step s) e^{iws}
        stream   e_t = [Re phi_t(w_m)] and [Im phi_t(w_m)], m < d_pe / 2

    Gates, scaling and score are PRISM's, and at gamma = 1 so are its values.

    Example: a query cursor that steps forward from "=" on and a key cursor that counts tokens meet
    at equal positions: attention finds the token to be copied, at any length.

    Shapes: those of pezoo.cursors.encoding.
    Options: those of prism, but gamma, eps and support. The defaults are what made PRISM
    extrapolate ten times and more at small scale: noise inside the gate network, which turns what
    it remembers into attractors, and a grid of frequencies that tells neighbouring offsets apart.
    Mode "snapped": gates are rounded, so that every cursor is an integer counter.
    Errors: ValueError without ctx.x or for an option out of range.

    Source: the gates and the score are Lee 2025, "Position as Probability"; the recurrence is ours
    (docs/prism.md derives it). Deviations: nothing is sharpened; resets start rare and key
    cursors count tokens, where all actions start equally likely there (Figure 11); and what
    pezoo.encodings.prism calls ours.
    """

    summary = "learned positions through their characteristic function"
    paper = "after Lee 2025"

    def __init__(  # noqa: PLR0913  options of an encoding are keywords
        self,
        shape: Shape,
        *,
        cursors: int = 2,
        d_pe: int = 64,
        similarity: str = "geometric",
        base: float = 100.0,
        bandwidth: float = 1.0,
        top: float = 0.9,
        norm: str = "frobenius",
        absolute: bool = False,
        ablate_absolute: bool = False,
        mu: float = 0.0,
        alpha: float = 1.0,
        top_weight: float = 0.0,
        lead: bool = False,
        stride: int = 1,
        before: str | int = "0",
        controller: str = "gru",
        hidden: int = 100,
        window: int = 4,
        copy_every: int = 0,
        copy_keys: str = "fixed",
        copy_gate: bool = False,
        gate_scale: float = 1.5,
        reset_bias: float = -2.5,
        key_bias: float = 2.0,
        query_bias: float = 0.0,
        gate_noise: float = 1.0,
        state_noise: float = 1.0,
        orthogonal: float = 0.0,
        w_hh: str = "free",
    ) -> None:
        options = CursorOptions(
            cursors=cursors, d_pe=d_pe, similarity=similarity, base=base, bandwidth=bandwidth,
            top=top, norm=norm, absolute=absolute, mu=mu, before=before,
            ablate_absolute=ablate_absolute, copy_every=copy_every, copy_keys=copy_keys,
            copy_gate=copy_gate, alpha=alpha, top_weight=top_weight, lead=lead,
            controller=controller, hidden=hidden, window=window,
            stride=stride, gate_scale=gate_scale, reset_bias=reset_bias, key_bias=key_bias,
            query_bias=query_bias, gate_noise=gate_noise, state_noise=state_noise,
            orthogonal=orthogonal, w_hh=w_hh,
        )  # fmt: skip
        super().__init__(shape, options, lambda total: Spectrum(stride, options.frequencies))

    def pictures(self, layers: Sequence[Context]) -> list[Picture]:
        return pictures(self, layers)
