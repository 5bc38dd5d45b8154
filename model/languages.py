"""Language codes: BCP-47 in requests, and what models call their languages. Free of torch.

OPUS-MT >>deu<<, >>cmn_Hans<<    M2M-100 __de__    NLLB deu_Latn    mBART de_DE
"""

from __future__ import annotations

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
_SHORT = {
    longer: short for short, longer in (pair.split(":") for pair in (_ISO_639 + _VARIANTS).split())
}


@dataclass(frozen=True)
class Language:
    """A language, with what tells its variants apart.

    Attributes:
        code: of ISO 639, the shortest one.
        subtags: script and region, where they are given.
    """

    code: str
    subtags: frozenset[str]

    @classmethod
    def parse(cls, name: str) -> Language:
        """Of a BCP-47 tag or of a model's name for a language."""
        bare = name.removeprefix(">>").removesuffix("<<").strip("_")
        code, *subtags = bare.replace("-", "_").split("_")
        code = code.lower()
        # mBART writes en_XX where there is no region to name.
        return cls(_SHORT.get(code, code), frozenset(s.lower() for s in subtags if s != "XX"))


class LanguageError(ValueError):
    """A model has no such language, or several; the message names them."""


def find_language(tag: str, names: Iterable[str]) -> str:
    """What a model calls the language with this BCP-47 tag.

    A tag without script and region finds the only name of its language; one with them finds the
    name that has them too.

    Raises:
        LanguageError: no name fits, or several do.
    """
    wanted = Language.parse(tag)
    names = list(names)
    same = [name for name in names if Language.parse(name).code == wanted.code]
    found = [name for name in same if wanted.subtags <= Language.parse(name).subtags]
    exact = [name for name in found if wanted.subtags == Language.parse(name).subtags]
    # A region says nothing where the model's name has none: de-AT finds __de__.
    plain = [name for name in same if not Language.parse(name).subtags]
    for candidates in (exact, found, plain):
        if len(candidates) == 1:
            return candidates[0]
    if same:
        raise LanguageError(f"{tag!r} could be any of {', '.join(same)}: add a script or region")
    shown = ", ".join(sorted(names)[:20]) + (", ..." if len(names) > 20 else "")
    raise LanguageError(f"there is no language {tag!r}; there are {shown}")
