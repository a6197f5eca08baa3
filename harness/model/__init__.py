"""The one backbone."""
