"""Models in Hugging Face's directory format: read, made ours, and compared with `transformers`."""
