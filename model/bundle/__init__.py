"""The bundle, which servers load: its format, sessions, tokenizers, languages and limits.

Imports no torch, and is the only part of `model` that `service` imports.
"""
