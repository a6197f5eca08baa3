"""No positional encoding."""

from pezoo.base import Encoding
from pezoo.registry import register


@register("nope")
class NoPE(Encoding):
    """Nothing is added: in a decoder the causal mask alone tells positions apart.

    An encoder has no mask, and so no order at all.

    Formula: a_ij = q_i k_j / sqrt(K).

    Paper: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization".
    """

    summary = "nothing: a decoder has its causal mask, an encoder no order at all"
    paper = "Kazemnejad et al. 2023"
    relative = True
    order_blind = True
