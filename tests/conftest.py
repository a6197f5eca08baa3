"""One thread per test process, and per process that a test starts: there is one for each core."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402  (it reads the variable when it is imported)

torch.set_num_threads(1)
