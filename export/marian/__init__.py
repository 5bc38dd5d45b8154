"""Models in Marian's own format: read as the MarianMT directory that says the same."""
