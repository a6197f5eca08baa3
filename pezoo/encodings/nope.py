"""No positional encoding."""

from pezoo.base import Encoding
from pezoo.registry import register


@register("nope")
class NoPE(Encoding):
    """Nothing is added: a causal mask alone tells the positions apart.

    Formula: a_ij = q_i k_j / sqrt(K).

    Paper: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization".
    """

    summary = "nothing: the causal mask alone"
    paper = "Kazemnejad et al. 2023"
    relative = True
    order_blind = True
