"""Attention of narrow heads on a CPU; `pezoo.adapters` runs it beside torch's own kernels.

A head of eight or sixteen features is too narrow for a matrix product to pay on a CPU: there most
of the time goes into moving the logits, and a loop that keeps them in the first-level cache is
faster. `pezoo.adapters.backends.eager` is its reference.
"""
