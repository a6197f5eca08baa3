"""Turn samples of tasks into batches, with seeds for every random number."""
