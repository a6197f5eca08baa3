"""Protocols, the configuration of a run, seeds and files. Imports no torch."""
