"""Translation memories: pairs of texts and their translations, which come before the model.

Clients make memories, each for its owner. `pairs.py` has the types and limits. `store.py` keeps the
pairs in SQLite, and `similar.py` finds those that are similar to a sentence. `wording.py` compares
texts without regard to white space, letter case and things; `adaptation.py` gives a translation
the things and the letter case of another text. `memory_translator.py` is the stage that answers
sentences, above the other stages of a text. `tmx.py` writes the exchange format, which
`documents/tmx.py` reads.
"""
