"""Things that pass through a translation unchanged or by rule, terms, and letter case.

`terms_translator.py` is the stage above the translator of sentences (`service.text` has the other
stages, and `interface.py` what all of them have in common).
"""
