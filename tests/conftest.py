"""One thread per test process, and per process that a test starts: there is one for each core.

torch reads the variable when it is imported. Ctrl-C works, also where a shell started the tests in
its background, which ignores it. Cores may be busy, so Hypothesis has no time limits.
"""

import os
import signal

os.environ["OMP_NUM_THREADS"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
