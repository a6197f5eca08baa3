"""Ways to read longer texts with a model that was trained with RoPE."""
