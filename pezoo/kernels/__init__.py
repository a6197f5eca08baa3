"""Numerical kernels: a folder for each operation, with its reference and compiled back ends.

`backends` chooses which one runs; `simd` is what the numba back ends share.
"""
