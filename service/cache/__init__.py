"""The response cache: results of sentences and scores, kept and shared. Off by default.

An engine's result depends on the tokens and options of a request only. So results are kept by a
hash of everything that they depend on (`keys.py`), in memory (`memory_store.py`) and, if the
settings name a server, in Valkey or Redis (`redis_store.py`). Equal requests at the same time are
computed once (`flights.py`). `response_cache.py` puts these together.
"""
