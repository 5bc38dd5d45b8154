"""ONNX Runtime on a GPU: caches, CUDA graphs, streams and steps in flight."""
