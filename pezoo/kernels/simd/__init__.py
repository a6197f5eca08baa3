"""Vectors for the numba back ends: their arithmetic, memory and compilation."""
