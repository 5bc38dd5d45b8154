"""Models in Marian's own format, read as equivalent MarianMT directories."""
