"""Running a model's graphs: plans in, candidates out.

`plan` is the interface that schedulers and tests see; `cpu` and `cuda` implement it with ONNX
Runtime. Only this package touches the key and value caches. It may import observability.
"""
