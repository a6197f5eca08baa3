"""Track a state in the group of the permutations of five objects."""

from harness.tasks.permutations import Permutations


class StateS5(Permutations):
    """n uniform permutations of five objects, then their product; the first one is applied first.

    23451 21345 23451 = 24513

    Vocabulary: the 120 permutations and "=". Length n: the number of permutations.
    Chance: the product is uniform, so 1/120.

    Paper: Merrill et al. 2024, "The Illusion of State in State-Space Models" (arXiv 2404.08819),
    whose models predict the product at every place.
    """

    name = "state_s5"
    size = 5
    summary = "the product of permutations of five objects"
    paper = "Merrill et al. 2024"
    example = "23451 21345 23451 = 24513"
