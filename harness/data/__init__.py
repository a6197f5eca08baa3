"""From a task's samples to the tensors of a batch, and the seeds they come from."""
