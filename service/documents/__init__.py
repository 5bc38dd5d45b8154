"""Documents: files in, the same files with translated text out.

A format reads a file into segments to translate, and a `Document` that writes the file again with
other texts in their places (`document.py`). The rest of the file does not change. `formats.py`
chooses a format by the file's name; `READERS` there names the module of each.

Text formats use `encodings.py`; XML formats use `xml_parts.py` (safe parsing), `archive.py` (zip
files within limits) and `mixed_content.py` (text with elements in it). `inline.py` converts tags
inside of a sentence for the translation of markup.

The server's own process reads no file. `worker_pool.py` does so in worker processes: a template
process (`worker.py`; `worker_template.py` is the server's side) forks one for each file, with
limits of memory and time. Clients take turns. `work.py` has their messages, `text_batches.py`
divides the texts.

This package may import text and the packages below it; it knows neither gRPC nor files on disk.
"""
