"""What an experiment is: protocols, the configuration of a run, seeds, files. Imports no torch."""
