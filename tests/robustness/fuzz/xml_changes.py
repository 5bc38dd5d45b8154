"""Changes of XML: more elements, signs between them, floods of both."""

from __future__ import annotations

import itertools
import random
import re

from tests.robustness.fuzz.mutations import changed_text

DEEP = 100_000
_XML_SIGNS = (
    "<source>", "</source>", "<target/>", "<g id='1'>", "</g>", "<x/>", "<!-- -->", "<![CDATA[x]]>",
    "<?p?>", "&amp;", "&nosuch;", "&#0;", "&#x1F600;", "<!DOCTYPE x>", ' xml:space="preserve"', "<",
    "<w:t>", "</w:t>", "<w:r>", "</w:r>", "<w:p/>", "<w:p>", "</w:p>", "<w:br/>", "<text:p>",
    "<text:s text:c='999999999'/>", "<text:s text:c='-1'/>", "<text:s text:c='x'/>", "</text:p>",
    "<text:tab/>", "<text:span>", "</text:span>", "<unit>", "</unit>", "<sc id='1'/>", "xmlns:w=''",
    'encoding="UTF-16"', 'encoding="nosuch"', 'encoding="ISO-8859-1"', ' translate="no"', "<mrk>",
    ' state="final"', "<seg-source>", "<w:txbxContent>", "<w:sdt>", "<m:oMath>",
)  # fmt: skip
_XML_PARTS = (
    "~", "<!-- ~ -->", "<?p ~?>", "<![CDATA[~]]>", "&#x1F600;", "<x/>", "<x id='2'/>",
    "<g id='9'>~</g>",
    "<source>~</source>", "<target>~</target>", "<seg-source>~</seg-source>", "<mrk>~</mrk>",
    "<trans-unit id='9'><source>~</source></trans-unit>", "<group>~</group>", "<sc id='1'/>~<ec/>",
    "<unit id='u'><segment><source>~</source></segment></unit>", "<pc id='3'>~</pc>",
    "<note>~</note>",
    "<bpt id='1'>&lt;b&gt;</bpt>~<ept id='1'>~</ept>", "<alt-trans><source>~</source></alt-trans>",
    "<w:p xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:r><w:t>~</w:t>"
    "</w:r></w:p>",
    "<w:r xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:t>~</w:t></w:r>",
    "<w:r xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:fldChar "
    "w:fldCharType='begin'/><w:tab/>~<w:br/><w:sym/></w:r>",
    "<w:tbl xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:p/>~</w:tbl>",
    "<text:p xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'>~</text:p>",
    "<text:span xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'>~<text:s text:c='~'/>"
    "</text:span>",
    "<text:s xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0' text:c='-7'/>",
    "<text:s xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0' text:c='999999999'/>",
    "<text:line-break xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'/>",
    "<text:note xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'><text:p>~</text:p>"
    "</text:note>",
)  # fmt: skip


def xml_changed(rng: random.Random, text: str) -> str:
    """A part with more elements in it, mostly well-formed; or with any changes."""
    if rng.random() < 0.25:
        return changed_text(rng, text, _XML_SIGNS)
    places = [match.end() for match in re.finditer(r">(?=.)", text)]
    if not places:
        return text
    for place in sorted(rng.choices(places, k=rng.choice((0, 1, 2, 5))), reverse=True):
        inserted = rng.choice(_XML_PARTS).replace("~", rng.choice(("", "word", " ", "a &lt; b\n")))
        text = text[:place] + inserted + text[place:]
    return text


def xml_flood(rng: random.Random, text: str) -> bytes:
    """XML that is deep, wide, or full of entities that grow."""
    kind = rng.randrange(4)
    if kind == 0:
        tag = rng.choice(("<a>", "<g id='1'>", "<source>", "<w:p>", "<text:span>"))
        return (text.partition("<body>")[0] + tag * DEEP).encode()
    if kind == 1:
        names = "abcdefghij"
        entities = "".join(
            f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in itertools.pairwise(names)
        )
        return f'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{entities}]><x>&j;</x>'.encode()
    if kind == 2:
        place = text.find("</", len(text) // 2)
        unit = rng.choice(
            ("<a/>", "<g>x</g>", "text ", "&amp;", "<!-- -->", "<w:r><w:t>a</w:t></w:r>")
        )
        return (text[:place] + unit * (500_000 // len(unit)) + text[place:]).encode()
    attributes = "".join(f' a{number}="x"' for number in range(20_000))
    return text.replace("<source>", f"<source{attributes}>", 1).encode()
