"""Iteration-level scheduling: which requests join the batch, step and leave.

Schedulers are pure Python over requests and plans, without tensors, clocks or threads; step loops
schedule, execute and update on threads. A lane is a group of rows that steps at its own time, on
caches of its own. This package may import decoding, runtime's interfaces and observability.
"""
