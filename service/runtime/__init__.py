"""Runners of a model's graphs: plans in, candidates out.

`service.domain.plan` is the interface for schedulers and tests; `cpu` and `cuda` implement it with
ONNX Runtime. Only this package touches the key and value caches. It may import observability.
"""
