"""Faults under load: what clients are answered while something breaks."""
