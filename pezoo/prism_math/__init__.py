"""What PRISM's paper says about its histograms, as functions: for tests, plots and readers.

Nothing here runs in training. Gates are those of one cursor, as in `pezoo.kernels.histogram`.

    transition.py    M_t, the matrix of one move                            Sections 5.1, 5.1.2
    displacement.py  how far a cursor moves: Equations 3 to 6               Sections 5.0.2, 5.1.1
    origin.py        which reset a coordinate is measured from              Section 5.0.1
    metric.py        distances from increments, axioms: Equations 1 and 2   Section 4.2
    similarity.py    from distance to similarity: Equation 7                Section 5.2
    features.py      vectors whose inner products are those similarities    Section 5.2
    sharpening.py    n sharpenings in a row                                 Appendix A.2.1
"""

from pezoo.prism_math.displacement import (
    displacement,
    joint_displacement,
    path_displacement,
)
from pezoo.prism_math.features import features, kernel_features
from pezoo.prism_math.metric import (
    Axioms,
    learned_distance,
    metric_axioms,
    signed_displacement,
)
from pezoo.prism_math.origin import (
    last_reset,
    last_reset_distribution,
    relative_coordinate,
    same_origin,
)
from pezoo.prism_math.sharpening import sharpen_repeatedly
from pezoo.prism_math.similarity import cosine, expected_similarity, kernel_matrix, laplacian, rbf
from pezoo.prism_math.transition import transition_matrix

__all__ = [
    "Axioms",
    "cosine",
    "displacement",
    "expected_similarity",
    "features",
    "joint_displacement",
    "kernel_features",
    "kernel_matrix",
    "laplacian",
    "last_reset",
    "last_reset_distribution",
    "learned_distance",
    "metric_axioms",
    "path_displacement",
    "rbf",
    "relative_coordinate",
    "same_origin",
    "sharpen_repeatedly",
    "signed_displacement",
    "transition_matrix",
]
