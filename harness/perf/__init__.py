"""What encodings and kernels cost: time, memory, state."""
