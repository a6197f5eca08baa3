"""Computations that positional relation functions carry to larger scales (Chen et al. 2026)."""
