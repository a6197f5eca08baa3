"""The record of one run: its schema, reading and checking it."""
