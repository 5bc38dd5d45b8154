"""The engine: the server's side of a model, with admission control, metrics and the watchdog.

An engine accepts or refuses requests of token ids (admission controller, quota, latency model,
queue estimate) and returns a generation for each. The model itself runs in a worker process or in a
thread of this one. This package may import worker and the packages below.
"""
