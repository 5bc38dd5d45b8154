"""What is served: the bundle's format, its sessions, tokenizers, languages and limits.

Imports no torch, and is the only part of `model` that `service` imports.
"""
