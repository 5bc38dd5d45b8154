"""One request from text to text: segmentation, preparation, translator, detokenizer, results.

It turns texts into token ids, submits these to an engine, and puts the answers together, with
scores and alignments. It may import engine and the packages below, and knows neither gRPC nor ONNX
Runtime.
"""
