"""What hostile calls cost: other clients' latency, blocks of the event loop, memory, wrong answers.

`attacks.py` has the calls, `bystanders.py` the clients beside them, `__main__.py` the runs.
"""
