"""Language codes: BCP-47 in requests, and what models call their languages. Free of torch.

    BCP-47     OPUS-MT         M2M-100   NLLB       mBART-50
    de         >>deu<<         __de__    deu_Latn   de_DE
    zh         -               __zh__    -          zh_CN
    zh-Hans    >>cmn_Hans<<    -         zho_Hans   -
    ar         >>ara<<         __ar__    arb_Arab   ar_AR
    pt-BR      >>pt_BR<<       -         -          -

`find_language` goes from the left to the right, `language_tags` from the right to the left.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

# ISO 639-1 codes, which BCP-47 prefers, with those of ISO 639-3.
_ISO_639 = """
aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak be:bel
bg:bul bi:bis bm:bam bn:ben bo:bod br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:ces cu:chu
cv:chv cy:cym da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas
ff:ful fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb
hi:hin ho:hmo hr:hrv ht:hat hu:hun hy:hye hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido
is:isl it:ita iu:iku ja:jpn jv:jav ka:kat kg:kon ki:kik kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor
kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir la:lat lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub
lv:lav mg:mlg mh:mah mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya na:nau nb:nob nd:nde
ne:nep ng:ndo nl:nld nn:nno no:nor nr:nbl nv:nav ny:nya oc:oci oj:oji om:orm or:ori os:oss pa:pan
pi:pli pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron ru:rus rw:kin sa:san sc:srd sd:snd se:sme
sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp ss:ssw st:sot su:sun sv:swe sw:swa
ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ty:tah
ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:yid yo:yor za:zha zh:zho
zu:zul
"""
# Single languages that models mean by the code of their group, and names of their own.
_VARIANTS = """
ar:arb ay:ayr az:azj et:ekk fa:pes ff:fuv ku:kmr lv:lvs mg:plt mn:khk ms:zsm ne:npi nso:ns om:gaz
or:ory ps:pbt qu:quy sq:als sw:swh uz:uzn yi:ydd zh:cmn he:iw
"""
# Found by each other's code, where a model has only one of them.
_ALIASES = {"no": "nb", "nb": "no", "fil": "tl", "tl": "fil"}
# The script that a language has unless its code says otherwise (the registry's Suppress-Script), of
# those that models have in two.
_USUAL_SCRIPTS = """
ar:arab be:cyrl bg:cyrl de:latn el:grek en:latn es:latn fa:arab fr:latn he:hebr hi:deva hy:armn
it:latn ja:jpan ka:geor kk:cyrl mk:cyrl mr:deva ne:deva pt:latn ru:cyrl th:thai tr:latn uk:cyrl
ur:arab vi:latn
"""
# The script that a region writes Chinese in.
_CHINESE = {"cn": "hans", "sg": "hans", "hk": "hant", "mo": "hant", "tw": "hant"}
_LONGEST_TAG = 64  # RFC 5646 has none over 35
_TAG = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")


def _shortened(pairs: str) -> dict[str, str]:
    return {longer: short for short, longer in (pair.split(":") for pair in pairs.split())}


_EQUALS, _MEMBERS = _shortened(_ISO_639), _shortened(_VARIANTS)
_USUAL_SCRIPT = dict(pair.split(":") for pair in _USUAL_SCRIPTS.split())


@dataclass(frozen=True)
class Language:
    """A language and its variant.

    Attributes:
        code: shortest code of ISO 639.
        subtags: script and region, where they are given.
        own_code: code in the name, which may be longer than `code`.
        tag: BCP-47 tag with all subtags.
    """

    code: str
    subtags: frozenset[str]
    own_code: str
    tag: str

    @classmethod
    def parse(cls, name: str) -> Language:
        """Parse a BCP-47 tag, or a model's name for a language."""
        bare = name.removeprefix(">>").removesuffix("<<").strip("_")
        own, *subtags = bare.replace("-", "_").lower().split("_")
        code = _EQUALS.get(own) or _MEMBERS.get(own, own)
        # mBART writes en_XX where there is no region to name.
        subtags = [subtag for subtag in subtags if subtag != "xx"]
        return cls(code, frozenset(subtags), own, written_tag([code, *subtags]))


# Of all that a server's models call their languages, and of requests' codes.
_parsed = functools.lru_cache(4096)(Language.parse)


# Codes of two letters that ISO 639-1 no longer has; models and clients still do.
_FORMER = {"bh", "in", "iw", "ji", "jw", "mo", "sh"}


def is_language_code(tag: str) -> bool:
    """Whether a tag, or a model's name for a language, begins with a code that a language can have.

    Codes of two letters are known (ISO 639-1); any three letters are taken for one of ISO 639-3.
    """
    if len(tag) > _LONGEST_TAG:
        return False
    language = _parsed(tag)
    code = language.own_code
    is_known = len(code) == 3 or code in _EQUALS.values() or code in _FORMER
    return is_known and _TAG.fullmatch(language.tag.lower()) is not None


def is_common_code(code: str) -> bool:
    """Whether a code is in ISO 639-1, or a three-letter code of such a language or its member."""
    return code in _EQUALS or code in _EQUALS.values() or code in _MEMBERS


def primary_subtag(tag: str) -> str:
    """The language of a BCP-47 tag, in lower case (RFC 5646, section 2.2.1): pt of pt-BR."""
    return tag.partition("-")[0].lower()


def without_region(tag: str) -> str:
    """A BCP-47 tag, or a model's name for a language, with its script alone: zh-Hant of zh-TW."""
    language = _parsed(tag)
    scripts = {subtag for subtag in language.subtags if len(subtag) == 4 and subtag.isalpha()}
    if language.code == "zh" and not scripts:
        scripts = {_CHINESE[region] for region in language.subtags & _CHINESE.keys()}
    return written_tag([language.code, *sorted(scripts)])


def written_tag(subtags: Iterable[str]) -> str:
    """A BCP-47 tag in the usual case (RFC 5646, section 2.1.1): zh-Hans, pt-BR."""
    code, *others = subtags
    cased = [s.title() if len(s) == 4 else s.upper() if len(s) == 2 else s for s in others]
    return "-".join([code, *cased])


def language_tags(names: Iterable[str]) -> dict[str, str]:
    """The BCP-47 tags of a model's languages, with what the model calls them, in its order.

    A tag is no longer than it must be: `deu_Latn` is de, and so are `de_DE` and `>>deu<<`. Where a
    model has a language in several scripts or regions, they are part of the tag (zh-Hans, zh-Hant);
    one without them, or in the language's usual script, has the bare code. A script that is known
    to be an unusual one is part of the tag where it is alone, too. Where a model has a language
    and a member of it (>>ara<<, >>arb<<), the member keeps its own code. Of two names of one
    language the first counts; one that is no language code is left out.
    """
    variants: dict[str, list[tuple[str, Language]]] = defaultdict(list)
    languages = {name: Language.parse(name) for name in dict.fromkeys(names)}
    named = {language.code for language in languages.values() if language.own_code not in _MEMBERS}
    for name, language in languages.items():
        is_second = language.own_code in _MEMBERS and language.code in named
        variants[language.own_code if is_second else language.code].append((name, language))
    tags: dict[str, str] = {}
    for code, members in variants.items():
        usual = {_USUAL_SCRIPT.get(code, "")}
        # The bare code's first: one without subtags, or else one with the usual script alone.
        members.sort(key=lambda member: (bool(member[1].subtags), member[1].subtags != usual))
        for number, (name, language) in enumerate(members):
            # A script that is not the usual one decides which letters are the language's own.
            others = {subtag for subtag in language.subtags - usual if len(subtag) == 4}
            is_unusual = bool(others) and code in _USUAL_SCRIPT
            is_bare = (len(members) == 1 and not is_unusual) or (
                number == 0 and language.subtags <= usual
            )
            tag = code if is_bare else "-".join([code, *language.tag.split("-")[1:]])
            if _TAG.fullmatch(tag.lower()):
                tags.setdefault(tag, name)
    order = {name: number for number, name in enumerate(languages)}
    return dict(sorted(tags.items(), key=lambda item: order[item[1]]))


class LanguageError(ValueError):
    """A model has no such language, or several; the message names them.

    Attributes:
        choices: the languages that the tag could mean; none if there is no such language.
    """

    def __init__(self, message: str, choices: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.choices = tuple(choices)


def find_language(tag: str, names: Iterable[str]) -> str:
    """The model's own code for the language with this BCP-47 tag.

    A tag without script and region finds the only name of its language; one with them finds the
    name that has them too. Names can be BCP-47 tags themselves.

    Raises:
        LanguageError: no name fits, or several do.
    """
    names = list(names)
    if len(tag) > _LONGEST_TAG:
        raise LanguageError(f"there is no language {tag[:64]!r}...")
    # The tag, or the longest beginning of it that has a script or region (RFC 4647, section 3.4).
    literal = {name.lower(): name for name in reversed(names)}
    parts = tag.lower().split("-")
    for count in range(len(parts), min(2, len(parts)) - 1, -1):
        if (name := literal.get("-".join(parts[:count]))) is not None:
            return name
    wanted, languages = _parsed(tag), {name: _parsed(name) for name in names}
    codes = (wanted.code, _ALIASES.get(wanted.code, wanted.code))
    same = next(
        (some for code in codes if (some := [n for n in names if languages[n].code == code])), []
    )
    subtags = {wanted.subtags}
    if wanted.code == "zh":
        subtags.add(frozenset(_CHINESE.get(subtag, subtag) for subtag in wanted.subtags))
    exact = [name for name in same if languages[name].subtags in subtags]
    found = [name for name in same if any(some <= languages[name].subtags for some in subtags)]
    # A region says nothing where the model's name has none: de-AT finds __de__.
    plain = [name for name in same if not languages[name].subtags]
    is_member = wanted.own_code in _MEMBERS
    for candidates in (exact, found, plain):
        alike = [name for name in candidates if (languages[name].own_code in _MEMBERS) == is_member]
        for chosen in (candidates, alike):
            if len(chosen) == 1:
                return chosen[0]
    if same:
        raise LanguageError(
            f"{tag[:64]!r} could be any of {', '.join(same)}: add a script or region", same
        )
    shown = ", ".join(sorted(names)[:20]) + (", ..." if len(names) > 20 else "")
    raise LanguageError(f"there is no language {tag[:64]!r}; there are {shown}")
