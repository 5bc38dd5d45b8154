"""Faults under load: the answers to clients while something breaks."""
