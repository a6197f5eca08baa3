"""Numerical kernels: a folder for each operation, with its reference and compiled back ends.

`backends` chooses which one runs; `simd` is what the numba back ends share.
"""

from typing import Literal

# Kernels of attention. This file does not import torch, so that settings can read it.
Attention = Literal["auto", "sdpa", "eager", "flex", "xformers"]
