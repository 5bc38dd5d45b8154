"""Evaluation of a network: reference search, BLEU and chrF, alignments, pictures."""
