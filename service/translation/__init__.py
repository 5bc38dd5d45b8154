"""One request from text to text: segmentation, preparation, translator, detokenizer, results.

Owns everything between texts and token ids, scores and alignments included. May import engine and
the packages below it. Knows neither gRPC nor ONNX Runtime.
"""
