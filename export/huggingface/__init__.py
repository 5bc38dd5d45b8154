"""Models in Hugging Face's directory format: read, converted, and compared with `transformers`."""
