"""The Transformer in PyTorch, to be read next to the paper, and its checkpoints."""
