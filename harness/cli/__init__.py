"""The `pezoo` command."""
