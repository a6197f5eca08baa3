"""One training step, several runs at once, evaluation."""
