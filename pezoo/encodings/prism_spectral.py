"""PRISM without histograms: the characteristic function of a cursor's position, one recurrence."""

from collections.abc import Sequence

from pezoo.base import Pass
from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.pictures import pictures
from pezoo.cursors.positions import Spectrum
from pezoo.pictures import Picture
from pezoo.registry import register


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
    Options: those of prism and their defaults, but for gamma and eps, and without leads.
    Mode "snapped": gates are rounded, so that every cursor is an integer counter.
    Errors: ValueError without ctx.x or for an option out of range.

    Source: the gates and the score are Lee 2025, "Position as Probability"; the recurrence is ours
    (docs/prism.md derives it). Deviations: nothing is sharpened, and those of prism.
    """

    summary = "learned positions through their characteristic function"
    paper = "after Lee 2025"
    reads = "text"
    version = 2
    Options = CursorOptions

    def scan(self, cursors: int) -> Spectrum:
        return Spectrum(self.options.stride, self.options.frequencies, self.options.copy_every)

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        return pictures(self, layers)
