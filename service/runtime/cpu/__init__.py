"""ONNX Runtime on CPUs: the runner, its key and value cache, and lanes.

A lane is a share of the rows that steps on threads of its own, with one lane for each core.
"""
