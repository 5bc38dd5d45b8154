"""What is done with whole texts, before and after their sentences are translated.

Begin with `detection.py`, which finds the language of a text.
"""
