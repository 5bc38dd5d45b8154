"""Iteration-level scheduling: which request joins the batch, steps and leaves.

Schedulers are pure Python over requests and plans, without tensors, clocks or threads; step loops
schedule, execute and update on threads. A lane is a group of rows that steps at its own time, on
caches of its own. It may import decoding, runtime's interfaces and observability.
"""
