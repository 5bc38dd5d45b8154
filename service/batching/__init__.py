"""Iteration-level scheduling: which request joins the batch, steps and leaves.

Schedulers are pure Python over jobs and plans and touch no tensor; step loops carry out schedule,
execute, update on threads. It may import decoding, runtime's interfaces and observability.
"""
