"""One conformance suite for every encoding, also for those of other packages.

    check_encoding(lambda shape: MyEncoding(shape))

runs every check and raises AssertionError with the first that fails, in plain words. In pytest:

    @parametrize_with_checks({"mine": MyEncoding})
    def test_conformance(check, factory):
        check(factory)
"""

from pezoo.testing.batches import (
    check_batch,
    check_left_padding,
    check_parts,
    check_right_padding,
)
from pezoo.testing.drawing import check_drawn, check_pure
from pezoo.testing.hooks import (
    check_bias_forms,
    check_constructible,
    check_gradients,
    check_shapes,
    check_state_dict,
)
from pezoo.testing.probe import (
    SHAPE,
    Check,
    Factory,
    Probe,
    build,
    context,
    tokens,
)
from pezoo.testing.sequences import (
    check_bfloat16,
    check_deterministic,
    check_long,
    check_order,
    check_prefix_stability,
    check_shift_invariance,
    check_streaming,
)
from pezoo.testing.suite import (
    CHECKS,
    check_encoding,
    parametrize_with_checks,
    run_check,
)

__all__ = [
    "CHECKS",
    "SHAPE",
    "Check",
    "Factory",
    "Probe",
    "build",
    "check_batch",
    "check_bfloat16",
    "check_bias_forms",
    "check_constructible",
    "check_deterministic",
    "check_drawn",
    "check_encoding",
    "check_gradients",
    "check_left_padding",
    "check_long",
    "check_order",
    "check_parts",
    "check_prefix_stability",
    "check_pure",
    "check_right_padding",
    "check_shapes",
    "check_shift_invariance",
    "check_state_dict",
    "check_streaming",
    "context",
    "parametrize_with_checks",
    "run_check",
    "tokens",
]
