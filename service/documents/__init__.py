"""Documents: files in, the same files with translated text out.

A format reads a file into segments, which are what is translated, and a `Document` that writes the
file again with other texts in their places (`document.py`). Everything else of the file stays.
`formats.py` chooses a format by a file's name.

Formats of text: `plain_text.py`, `web_page.py`, `subtitles.py`, `gettext_catalog.py`. Of XML:
`xliff.py`, `word.py`, `open_document.py`, with `xml_parts.py` (safe parsing), `archive.py` (zip
files within limits) and `mixed_content.py` (text with elements in it). `inline.py` is how tags
inside of a sentence travel through the translation of markup.

The server's own process reads no file. `worker_pool.py` does it in worker processes: a template
process (`worker.py`, the server's end is `worker_template.py`) forks one for each file, within
limits of memory and time, and clients in turn. `work.py` is what they send each other,
`text_batches.py` divides the texts.

May import text and the packages below it; knows neither gRPC nor files on disk.
"""
