"""The APIs of other translation services, for programs that speak those already.

Each module is one API: which paths it has, what their requests mean in the contract's, and the
shape of its answers and errors. `endpoint.py` runs a request of any of them as a call of the
contract: with the same limits, keys, quotas, metrics and log lines.
"""
