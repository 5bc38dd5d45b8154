"""Fuzzing: made-up and mutated inputs for parsers in this process, and for a server on its ports.

`target.py` says what a target is. `targets.py` imports every module with targets; `run.py` runs
them.
"""
