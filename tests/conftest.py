"""One thread per test process, and per process that a test starts: there is one for each core.

torch reads the variable when it is imported. Ctrl-C works, also where a shell started the tests in
its background, which ignores it.
"""

import os
import signal

os.environ["OMP_NUM_THREADS"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import torch

torch.set_num_threads(1)
