"""The cost of encodings and kernels: time, memory, state."""
