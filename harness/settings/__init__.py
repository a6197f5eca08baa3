"""Protocols, requests and sweeps become the configs of runs."""
