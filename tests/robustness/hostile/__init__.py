"""The cost of hostile calls: other clients' latency, blocked event loop, memory, wrong answers.

`attacks.py` has the calls, `bystanders.py` the other clients, `__main__.py` the runs.
"""
