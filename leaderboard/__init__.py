"""Turns run records into pages. Imports no torch."""
