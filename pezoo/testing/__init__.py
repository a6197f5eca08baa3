"""The conformance suite for encodings, also for those of other packages.

    check_encoding(lambda shape: MyEncoding(shape))

runs every check and raises AssertionError for the first that fails. In pytest:

    @parametrize_with_checks({"mine": MyEncoding})
    def test_conformance(check, factory):
        check(factory)

CHECKS holds every check; SHAPE, build, context and tokens make small inputs for your own tests.
"""

from pezoo.testing.probe import SHAPE, Check, Factory, Probe, build, context, tokens
from pezoo.testing.suite import CHECKS, check_encoding, parametrize_with_checks, run_check

__all__ = [
    "CHECKS",
    "SHAPE",
    "Check",
    "Factory",
    "Probe",
    "build",
    "check_encoding",
    "context",
    "parametrize_with_checks",
    "run_check",
    "tokens",
]
