"""Trains identical backbones that differ in nothing but the encoding, and evaluates them."""
