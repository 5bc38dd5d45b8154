"""TBX as term bases write it: versions 2 and 3, both styles of the latter, and TBX-Min."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.errors import InvalidArgumentError, StartupError
from service.glossaries import files as glossary_files
from service.glossaries.files import GlossaryFiles, read_glossary

# Trados MultiTerm, Microsoft and others: a document type, groups of terms, notes, regions.
VERSION_2 = """<?xml version='1.0' encoding="UTF-8"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en-US">
<martifHeader><fileDesc><sourceDesc><p>From a term base</p></sourceDesc></fileDesc></martifHeader>
<text><body>
<termEntry id="c1"><descrip type="subjectField">computing</descrip>
  <langSet xml:lang="en-US"><descripGrp><descrip type="definition">A <hi>dog</hi>.</descrip>
  </descripGrp><ntig><termGrp><term id="t1">dog</term><termNote type="partOfSpeech">noun</termNote>
  </termGrp></ntig><tig><term>hound</term>
  <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig></langSet>
  <langSet xml:lang="de-DE"><tig><term>Köter</term>
  <termNote type="administrativeStatus">supersededTerm-admn-sts</termNote></tig>
  <tig><term>Haus<hi>hund</hi></term></tig><tig><term>Hund</term>
  <termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></tig></langSet>
  <langSet xml:lang="FR"><tig><term>le\n   chien</term></tig></langSet>
</termEntry>
<termEntry id="c2"><langSet xml:lang="en-GB"><tig><term>cat</term></tig></langSet>
  <langSet xml:lang="de"><tig><term>Katze</term></tig></langSet></termEntry>
<termEntry id="c3"><langSet xml:lang="en"><tig><term>only English</term></tig></langSet></termEntry>
</body><back/></text></martif>"""

VERSION_3 = """<?xml version="1.0" encoding="UTF-8"?>
<?xml-model href="TBXcoreStructV03.rng" schematypens="http://relaxng.org/ns/structure/1.0"?>
<tbx style="STYLE" type="TBX-Basic" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
 xmlns:min="http://www.tbxinfo.net/ns/min" xmlns:basic="http://www.tbxinfo.net/ns/basic">
<tbxHeader><fileDesc><sourceDesc><p>x</p></sourceDesc></fileDesc></tbxHeader><text><body>
<conceptEntry id="c1"><langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Köter</term>NOT</termSec><termSec><term>Hausdog</term>
</termSec><termSec><term>Hund</term>YES</termSec></langSec></conceptEntry></body></text></tbx>"""
STATUS = {
    "dca": '<termNote type="administrativeStatus">{}Term-admn-sts</termNote>',
    "dct": "<min:administrativeStatus>{}Term-admn-sts</min:administrativeStatus>",
}

MIN = """<TBX dialect="TBX-Min"><header><languages source="de" target="en"/></header><body>
<entry id="C1"><subjectField>x</subjectField><langGroup xml:lang="de"><termGroup><term>Hund</term>
<termStatus>preferred</termStatus></termGroup></langGroup><langGroup xml:lang="en"><termGroup><term>
hound</term><termStatus>notRecommended</termStatus></termGroup><termGroup><term>dog</term></termGroup>
</langGroup></entry></body></TBX>"""


def forms(path: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """The accepted translations of each term, by directions."""
    return {
        "-".join(file.languages): {entry.source: entry.forms for entry in file.glossary.entries}
        for file in read_glossary(path)
    }


def written(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_version_2(tmp_path: Path) -> None:
    found = forms(written(tmp_path / "terms.tbx", VERSION_2))
    assert found["en-de"] == {
        "dog": ("Hund", "Haushund"),  # the preferred one is inserted
        "hound": ("Hund", "Haushund"),  # deprecated: translated, but no translation
        "cat": ("Katze",),
    }
    assert found["de-en"] == {
        "Köter": ("dog",),
        "Haushund": ("dog",),
        "Hund": ("dog",),
        "Katze": ("cat",),
    }
    assert found["fr-de"] == {"le chien": ("Hund", "Haushund")}
    assert found.keys() == {"en-de", "de-en", "en-fr", "fr-en", "de-fr", "fr-de"}


@pytest.mark.parametrize("style", STATUS)
def test_version_3(tmp_path: Path, style: str) -> None:
    file = VERSION_3.replace("STYLE", style)
    for place, status in (("NOT", "deprecated"), ("YES", "preferred")):
        file = file.replace(place, STATUS[style].format(status))
    found = forms(written(tmp_path / "terms.tbx", file))
    assert found["en-de"] == {"dog": ("Hund", "Hausdog")}
    assert found.keys() == {"en-de", "de-en"}


def test_min(tmp_path: Path) -> None:
    found = forms(written(tmp_path / "terms.tbx", MIN))
    assert found == {"de-en": {"Hund": ("dog",)}, "en-de": {"hound": ("Hund",), "dog": ("Hund",)}}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "terms.tbx"
    path.write_bytes(VERSION_2.replace("UTF-8", encoding.removesuffix("-sig")).encode(encoding))
    assert forms(path)["fr-en"] == {"le chien": ("dog",)}


async def test_requests_find_them_by_name_and_languages(tmp_path: Path) -> None:
    written(tmp_path / "animals.tbx", VERSION_2)
    written(tmp_path / "pair.en-de.tbx", VERSION_2)
    (tmp_path / "pair.en-fr.tsv").write_text("dog\tchien\n")
    (tmp_path / "elsewhere").mkdir()
    own = written(tmp_path / "elsewhere" / "a.tbx", VERSION_2)
    files = GlossaryFiles.of([f"own={own}"], [tmp_path])
    for name, source, target, expected in (
        ("animals", "en-GB", "de", "Hund"),
        ("animals", "fr", "de-AT", None),
        ("own", "en", "fr-CA", "le chien"),
        ("pair", "en", "de", "Hund"),
        ("pair", "en", "fr", "chien"),
    ):
        found = (await files.get(name, source, target)).matches("A dog.")
        assert [match.form for match in found] == ([expected] if expected else [])
    with pytest.raises(InvalidArgumentError, match="en-fr, en-de, not de-en"):
        await files.get("pair", "de", "en")


def concept(*terms: tuple[str, str]) -> str:
    sections = (f'<langSet xml:lang="{c}"><tig><term>{t}</term></tig></langSet>' for c, t in terms)
    return f"<termEntry>{''.join(sections)}</termEntry>"


def test_scripts_are_languages_of_their_own_if_there_are_several(tmp_path: Path) -> None:
    both = concept(("en", "dog"), ("zh-CN", "简"), ("zh-TW", "繁"))
    path = written(tmp_path / "terms.en-zh.tbx", f"<martif>{both}</martif>")
    assert forms(path) == {"en-zh-Hans": {"dog": ("简",)}, "en-zh-Hant": {"dog": ("繁",)}}
    [simplified, traditional] = read_glossary(path)
    assert simplified.fits("en", "zh-SG")
    assert traditional.fits("en", "zh-Hant")
    assert not traditional.fits("en", "zh-CN")
    written(path, f"<martif>{concept(('en', 'dog'), ('zh-TW', '繁'))}</martif>")
    assert forms(path) == {"en-zh": {"dog": ("繁",)}}


def test_homonyms_have_the_forms_of_all_their_concepts(tmp_path: Path) -> None:
    many = [concept(("en", "bank"), ("de", form)) for form in ("Bank", "Ufer", "Bank")]
    long = [concept(("en", "word"), ("de", f"{'w' * 180}{i}")) for i in range(30)]
    odd = [concept(("en", text), ("de", text)) for text in ("x" * 201, "...", "")]
    file = f"<martif>{''.join([*many, *long, *odd])}</martif>"
    found = forms(written(tmp_path / "terms.en-de.tbx", file))["en-de"]
    assert found["bank"] == ("Bank", "Ufer")
    assert len(found["word"]) == 2  # as many as a line of other files may have characters
    assert found.keys() == {"bank", "word"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<mtf><conceptGrp/></mtf>", "is no TBX file: its first tag is 'mtf'"),
        ("<martif><termEntry></martif>", "no well-formed XML"),
        ("dog\tHund", "no well-formed XML"),
        ("<martif/>", "no terms in two languages"),
        (f"<martif>{concept(('en', 'dog'), ('english', 'x'))}</martif>", "no terms in two languag"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(StartupError, match=message):
        read_glossary(written(tmp_path / "terms.tbx", content))
    with pytest.raises(StartupError, match="can't be read"):
        read_glossary(tmp_path / "none.tbx")


def test_entities_are_not_expanded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    doctype = f'<!DOCTYPE martif [<!ENTITY e SYSTEM "{tmp_path / "secret"}">]>'
    file = f"{doctype}<martif>{concept(('en', 'a dog &e;'), ('de', 'Hund'))}</martif>"
    assert "secret" not in str(forms(written(tmp_path / "terms.tbx", file)))


def test_the_number_of_entries_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary_files, "MAX_ENTRIES", 10)
    concepts = "".join(concept(("en", f"a{i}"), ("de", f"b{i}")) for i in range(10))
    with pytest.raises(StartupError, match=r"10 entries in all directions.* as in NAME.en-de.tbx"):
        read_glossary(written(tmp_path / "terms.tbx", f"<martif>{concepts}</martif>"))
    named = written(tmp_path / "terms.en-de.tbx", f"<martif>{concepts}</martif>")
    assert len(forms(named)["en-de"]) == 10
