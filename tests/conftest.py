"""One thread per test process, and per process that a test starts: there is one for each core.

torch reads the variable when it is imported.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
