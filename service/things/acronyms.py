"""Words in capitals: acronyms, which stay, and words that are emphasised, which are translated."""

from __future__ import annotations

# English words that are written in capitals for emphasis, and acronyms that other languages have
# words or acronyms of their own for.
_TRANSLATED = """
a about ad after again ai aids all alone also always am an and another any are as ask at
away back bad bc bce be been before best big both but buy by call came can can't cannot ce
ceo cia click close come could danger day dc dead did dna do does don't done down each easy
ecb eec eg either else end enter error etc eu even ever every exit fast few find fine fire
first five for four free from full fun gdp get girl give go god going gone good got great
had half has hate have he hear hell hello help her here hers hey hi him his hiv hold home
hot how huge id ids ie if ill imf in info into is isn't it its job just keep kill kind know
la large last late left less let life like list little live long look lot lots love made
main make man many may me mean men menu might mine more most mp mph much must my nato near
need never new next nice no nobody none nor not note nothing now ny nyc of off oh ok okay
old on once one only open or other our ours out over own part past pay play please pm pull
push put quit read real really right run sad said sale same save saw say see seen she shit
should shut sit six slow so some soon stay still stop such sure take talk tell ten test than
that the their them then there these they thing think this those three thus time to today
too top true try turn tv two uae uk un under up upon us usa use used ussr vat very vs wait
want war warn was wc we well went were west what when where which while who whom whose why
will win with woman won word work world worse worst would wow wrong wto ww wwi wwii yeah
year yes yet you your yours zero
"""
_WORDS = frozenset(_TRANSLATED.split())
# Of these, those that also say a sound: la la la, he he he.
_SOUNDS = frozenset(["a", "ai", "do", "he", "hey", "hi", "la", "oh", "wow", "yeah"])


def is_acronym(word: str) -> bool:
    """Whether a word in capitals is an acronym that stays as it is."""
    return word.lower() not in _WORDS


def is_common(word: str) -> bool:
    """Whether a word is one of these English words, and says no sound."""
    return word.lower() in _WORDS and word.lower() not in _SOUNDS
