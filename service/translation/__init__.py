"""Translation of a request's texts: segmentation, preparation, translator, detokenizer, results.

This package owns everything between texts and token ids, including scores and alignments. It may
import engine and the packages below it, and knows neither gRPC nor ONNX Runtime.
"""
