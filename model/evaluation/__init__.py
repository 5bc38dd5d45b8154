"""How well a network translates: reference search, BLEU and chrF, alignments, pictures."""
