"""Track a state in the group of the permutations of three objects."""

from harness.tasks.permutations import Permutations


class StateS3(Permutations):
    """n uniform permutations of three objects, then their product; the first one is applied first.

    231 213 231 = 213

    Vocabulary: the six permutations and "=". Length n: the number of permutations.
    Chance: the product is uniform, so 1/6.

    Paper: Merrill et al. 2024, "The Illusion of State in State-Space Models" (arXiv 2404.08819),
    whose models predict the product at every place.
    """

    name = "state_s3"
    size = 3
    summary = "the product of permutations of three objects"
    paper = "Merrill et al. 2024"
    example = "231 213 231 = 213"
