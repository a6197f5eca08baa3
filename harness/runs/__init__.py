"""One run from start to record: its folder, its files, its costs."""
