"""The cost of hostile calls: other clients' latency, blocked event loop, memory, wrong answers.

`attacks.py` has the calls, `bystanders.py` the clients beside them, `__main__.py` the runs.
"""
