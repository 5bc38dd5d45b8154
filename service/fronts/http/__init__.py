"""Runs calls over HTTP: bodies, forms, answers, server-sent events.

`endpoint.py` has what all calls share, `call_endpoint.py` the contract as JSON, `front_endpoint.py`
the APIs of other services.
"""
