"""PRISM without histograms: the characteristic function of a cursor's position, one recurrence."""

from collections.abc import Sequence
from dataclasses import dataclass

from pezoo.base import Context
from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.pictures import pictures
from pezoo.cursors.positions import Spectrum
from pezoo.pictures import Picture
from pezoo.registry import register


@dataclass(frozen=True, kw_only=True)
class SpectralOptions(CursorOptions):
    """Options of prism_spectral: those of CursorOptions, with defaults that extrapolate further.

    Noise inside the gate network turns what it remembers into attractors, and the grid of
    frequencies tells neighbouring offsets apart.
    """

    cursors: int = 2
    d_pe: int = 64
    similarity: str = "geometric"
    base: float = 100.0
    gate_scale: float = 1.5
    reset_bias: float = -2.5
    gate_noise: float = 1.0
    state_noise: float = 1.0
    orthogonal: float = 0.0


@register("prism_spectral")
class PRISMSpectral(CursorEncoding):
    """Follow PRISM's cursors frequency by frequency instead of offset by offset.

    PRISM's stream sum_d h[d] e^{iwd} is the characteristic function phi(w) of the cursor's
    position. Without sharpening it obeys one complex linear recurrence per frequency, so that no
    histogram is needed, no support ends, and the state has a constant size:

        phi_t(w) = M_t(w) ((1 - r_t) phi_{t-1}(w) + r_t),  M_t(w) = sum_s Pr(step s) e^{iws}
        stream   e_t = [Re phi_t(w_m)] and [Im phi_t(w_m)], m < d_pe / 2

    Gates, scaling and score are PRISM's, and at gamma = 1 so are its values.

    Example: a query cursor that steps forward from "=" on and a key cursor that counts tokens meet
    at equal positions: attention finds the token to be copied, at any length.

    Shapes: those of pezoo.cursors.encoding.
    Options: those of prism, but gamma, eps and support, with the defaults of SpectralOptions. They
    are what made PRISM extrapolate ten times and more at small scale.
    Mode "snapped": gates are rounded, so that every cursor is an integer counter.
    Errors: ValueError without ctx.x or for an option out of range.

    Source: the gates and the score are Lee 2025, "Position as Probability"; the recurrence is ours
    (docs/prism.md derives it). Deviations: nothing is sharpened; resets start rare and key
    cursors count tokens, where all actions start equally likely there (Figure 11); and what
    pezoo.encodings.prism calls ours.
    """

    summary = "learned positions through their characteristic function"
    paper = "after Lee 2025"
    Options = SpectralOptions

    def scan(self, cursors: int) -> Spectrum:
        return Spectrum(self.options.stride, self.options.frequencies)

    def pictures(self, layers: Sequence[Context]) -> list[Picture]:
        return pictures(self, layers)
