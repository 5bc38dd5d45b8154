"""The use cases: one file for each thing that a client can ask for, whatever interface it uses.

Domain values in, domain values and the errors of `service.errors` out. In each use case the order
is the same: the caller, the key's permission and charge, the models, the work, the answer. An
interface runs them within a `RunningCall`, which authenticates, limits, counts and logs a call.
"""
