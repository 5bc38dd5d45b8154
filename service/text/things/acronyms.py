"""Words in capitals: acronyms, which stay, and words that are emphasised, which are translated."""

from __future__ import annotations

# English words that are written in capitals for emphasis, and acronyms that other languages have
# words or acronyms of their own for.
_TRANSLATED = frozenset(
    """
    a about after again all alone also always am an and another any are as ask at away back bad be been
    before best big both but buy by call came can cannot can't click close come could danger day dead did
    do does done don't down each easy either else end enter error even ever every exit fast few find fine
    fire first five for four free from full fun get girl give go god going gone good got great had half
    has hate have he hear hell hello help her here hers hey hi him his hold home hot how huge if ill in
    info into is isn't it its job just keep kill kind know large last late left less let life like list
    little live long look lot lots love made main make man many may me mean men menu might mine more most
    much must my near need never new next nice no nobody none nor not note nothing now of off oh ok okay
    old on once one only open or other our ours out over own part past pay play please pull push put quit
    read real really right run sad said sale same save saw say see seen she shit should shut sit six slow
    so some soon stay still stop such sure take talk tell ten test than that the their them then there
    these they thing think this those three thus time to today too top true try turn two under up upon
    us use used very wait want war warn was we well went were west what when where which while who whom
    whose why will win with woman won word work world worse worst would wow wrong yeah year yes yet you
    your yours zero
    ad ai bc bce ce ceo dc dna eg etc eu gdp id ie imf la mp nato ny nyc ok pm tv uae uk un us usa ussr
    vat vs wc ww wwi wwii aids hiv cia eec ecb wto id ids mph
    """.split()
)


def is_acronym(word: str) -> bool:
    """Whether a word in capitals is an acronym that stays as it is."""
    return word.lower() not in _TRANSLATED
