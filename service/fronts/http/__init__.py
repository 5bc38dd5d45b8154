"""Runs calls over HTTP: bodies, forms, answers, server-sent events.

`call_endpoint.py` runs calls of the contract as JSON, `front_endpoint.py` those of other services'
APIs.
"""
