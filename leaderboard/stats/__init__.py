"""Records in, rows and tables out: means, intervals, tests and ranks."""
