"""Markup: translates HTML, XML and Markdown, with the tags on the words that they belong to.

A document is parsed into blocks, which are copied, and runs of text with inline tags
(`document.py`; `html_parser.py` and `markdown_parser.py` make it). The text of all runs, a line
each, is translated by the stage below. Links say which words of the translation come from the words
of an element (`placement.py`); `rendering.py` writes the run again, each tag once.
"""
