"""Numerical kernels behind the encodings."""
