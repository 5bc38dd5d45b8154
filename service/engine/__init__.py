"""The front of a model: admission, generations as they come, metrics, the watchdog.

An engine takes requests of token ids or refuses them (admission controller, quota, latency model,
queue estimate) and gives back generations. The model runs behind it, in a worker process or in this
one. It may import worker and the packages below.
"""
