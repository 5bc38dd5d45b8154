"""The OpenAPI description of the HTTP port: /openapi.json.

`contract.json` is the contract's part, written by `proto/generate.py`. `document.py` adds the
fronts, as their operations say.
"""
