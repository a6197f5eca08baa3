"""Which computations a positional relation can carry to larger scales (Chen et al. 2026)."""
