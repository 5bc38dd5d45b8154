"""Stages that process a text before and after the sentence translator.

A stage translates texts by another translator, the one below it: the sentence translator
(`service.translation`), or a further stage. All have the methods of `LinkedTranslator`
(`service.things.interface`), so that a stage does not know what is below it. From top to bottom:

1. markup: takes the tags out of a document, and puts them into its translation. In its place for
   plain text: lines (`line_breaks.py`), which joins wrapped lines, and links of reStructuredText
   (`rest_links.py`), which are markup in a text without tags;
2. terms (`service.things`): keeps things such as placeholders and numbers, applies glossaries,
   reads CAPITALS; markup moves tags by its links;
3. the translator of sentences.

A stage is made for one request, with the options that are its own (`TextOptions`). It

- takes texts and options, and hands texts and options to the translator below, as often as it
  needs to;
- returns one `TextResult` for each text, in order, whose counts and times are those of all calls
  that it made below;
- returns links if `TranslateOptions.links` asks for them: in characters of the texts that it was
  given and of the translations that it returns, after all of its changes. It asks for links below
  if it needs them, whether it was asked or not;
- returns the errors of single texts in their results, and raises those of the whole call.

`text_translator.py` stacks the stages that a request needs. For a request that needs none, the
sentence translator is called directly.

`detection.py`, which is no stage, finds the language of a text before a model is chosen.
"""
