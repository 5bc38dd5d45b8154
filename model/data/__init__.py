"""Recipes and text: corpora, cleaning, mixture, vocabulary, augmentation, word alignments."""
