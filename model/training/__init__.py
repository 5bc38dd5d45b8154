"""Training: the loop, the optimiser, the state of a run, its log and report."""
