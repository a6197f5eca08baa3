"""One encoding, or one family, per file. A new file here is found by the registry."""
