"""One training step, evaluation."""
