"""What the HTTP port answers, in the form of OpenAPI: /openapi.json.

`contract.json` is the contract's part, written by `proto/generate.py`. `document.py` adds the
fronts, as their operations say.
"""
