"""The use cases: one file for each thing that a client can ask for, over any interface.

A use case takes and returns domain values, and raises the errors of `service.errors`. Each one
checks and charges the key, chooses the models, does the work and returns the answer, in this order.
An interface runs it within a `RunningCall`, which authenticates, limits, counts and logs the call.
"""
