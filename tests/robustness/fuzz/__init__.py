"""Fuzzing: made-up and mutated inputs for parsers in this process, and for a server on its ports.

`target.py` says what a target is. The modules with targets are `markup.py`, `texts.py`,
`documents.py`, `document_bombs.py`, `requests.py` and `configuration.py` (parsers), and
`grpc_calls.py`, `http_requests.py` and `http2_frames.py` (a server). `run.py` runs them.
"""
