"""No positional encoding."""

from pezoo.base import Encoding
from pezoo.registry import register


@register("nope")
class NoPE(Encoding):
    """Add nothing: in a decoder the causal mask alone distinguishes positions.

    An encoder without a mask cannot see the order of tokens.

    Formula: a_ij = q_i k_j / sqrt(K).

    Paper: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization".
    """

    summary = "nothing: a decoder has its causal mask, an encoder no order at all"
    paper = "Kazemnejad et al. 2023"
    reports = "best of five encodings on ten tasks beyond the training length"
    reads = "nothing"
    relative = True
    order_blind = True
