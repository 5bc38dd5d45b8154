"""The patterns of things, in order of precedence.

They take linear time on any input: no part of a pattern can match in several ways, and a part that
can fail after a long run has a bounded length, or can't begin within that run.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata

from model.bundle.languages import primary_subtag
from service.translation.verbatim import scripts_of

PICTURES = (
    "\u203c\u2049\u231a-\u23ff\u25aa-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
_MARKS = "\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff"
_BLOCKS_WITH_SIGNS = (
    *(range(0xA0, 0x100), range(0x2B0, 0x300), range(0x1D2C, 0x1DC0)),
    range(0x2000, 0x3400),
)


def _signs(*, normalised: bool) -> str:
    """A class of the signs that normalisation (NFKC) changes, or of those that it keeps."""
    found = []
    for code in itertools.chain(*_BLOCKS_WITH_SIGNS):
        sign = chr(code)
        category = unicodedata.category(sign)
        if category in ("No", "So", "Sm", "Sc") or (category in ("Lm", "Sk", "Nl") and normalised):
            is_changed = unicodedata.normalize("NFKC", sign) != sign
            if is_changed is normalised:
                found.append(re.escape(sign))
    return "".join(found)


# Letters too that stand for units.
NORMALISED = _signs(normalised=True) + "′″‴‵‶µªºℓ\u2126\u212a\u212b"
SYMBOLS = _signs(normalised=False) + "†‡§¶‰‱※⁂‖′″"
PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
"""Characters without a meaning of their own: icons of a font, or a model's sentinels."""
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"

_SUFFIXES = (
    "ai|app|at|be|biz|br|ca|cc|ch|cn|co|com|cz|de|dev|dk|edu|es|eu|fm|fr|gg|gov|gr|hk|hu|ie|info|int|io"
    "|jp|kr|ly|mil|museum|mx|name|net|news|nl|nz|online|org|pl|pt|ro|ru|se|shop|site|tech|travel|tv|tw"
    "|ua|uk|us|wiki|xyz|za"
)
_FILES = (
    "7z|apk|asp|aspx|avi|bak|bash|bat|bib|bin|bmp|bz2|c|cc|cfg|class|cmd|conf|cpp|cs|css|csv|db|deb"
    "|dll|dmg|doc|docx|env|eps|epub|exe|flac|gif|git|go|gradle|gz|h|heic|hpp|htm|html|ico|ini|ipynb|iso"
    "|jar|java|jpeg|jpg|js|json|jsp|jsx|kt|lock|log|lua|md|mkv|mo|mov|mp3|mp4|mpeg|mqxliff|msi"
    "|mxliff|odp|ods|odt|ogg|onnx|otf|pdf|php|pl|plist|png|po|pot|ppt|pptx|properties|ps1|psd|py|pyc|rar|rb|rc|rpm|rs|rst|rtf"
    "|sass|scss|sdlxliff|sh|so|sql|sqlite|srt|svg|swift|tar|tex|tgz|tif|tiff|tmp|toml|ts|tsv|tsx|ttf"
    "|txlf|txt|vbs|vtt|vue|war|wav|webm|webp|whl|wma|wmv|woff|woff2|xhtml|xlf|xliff|xls|xlsx|xml|xz|yaml|yml|zip"
)
CURRENCIES = "$€£¥₹₽₩₺₴₦₫฿₪¢"
_CURRENCY_CODES = (
    "USD|EUR|GBP|CHF|JPY|CNY|RMB|INR|RUB|UAH|PLN|CZK|SEK|NOK|DKK|HUF|RON|BGN|TRY|AUD|CAD|NZD|HKD|SGD"
    "|KRW|BRL|MXN|ZAR|ILS|THB|BTC|ETH"
)
_AMOUNT = r"\d++(?:[.,'’\u00a0\u202f]\d++)*+"
_DASHES = r"(?:[.,][-–—]{1,2})"  # for no cents
_NUMBER = r"\d++(?:[.,:/'’\u00a0\u202f-]\d++)*+"
# Where a unit stands beside its number, or apart from it.
_GLUED = (
    "km/h|km²|km2|km|m²|m2|m³|m3|cm²|cm³|cm|mm²|mm|nm|µm|m|kg|mg|µg|g|ml|cl|l|L|kWh|kW|MW|GW|W|kV|V|mAh"
    "|mA|A|kHz|MHz|GHz|Hz|kB|KB|MB|GB|TB|PB|KiB|MiB|GiB|kbps|Mbps|Gbps|fps|dpi|ppi|rpm|mph|ft|lbs|lb|oz"
    "|px|pt|em|rem|ms|min|sec|hrs|hr|h|s|%|‰|°C|°F|°"
)
_APART = (
    "km/h|µm|µg|nm|ml|mA|mAh|Hz|MW|kV|Mbps|Gbps|dpi|px|ms|s|min|l|L|cl|dl|g|m|h|V|W|hPa|bar|psi|dB|ha|kcal"
    "|lbs?|oz|ft|mph|rpm|fps|kN|Nm"
    "|km²|m²|m³|cm²|cm³|mm²|km|cm|mm|kg|kWh|kW|kHz|MHz|GHz|kB|KB|MB|GB|TB|%|‰|°C|°F|°"
)
_CLOCK = r"\d{1,2}(?:[:.][0-5]\d){0,2}"
_HALF = r"(?:[aApP]\.\s?[mM]\.|[aApP]\.?[mM](?![\w]))"
_ZONE = r"\s(?:[ACEMP][SD]?T|CES?T|BST|GMT|UTC)\b"
_PART_OF_DAY = r"in\sthe\s(?:morning|afternoon|evening)"
_AT = r"(?:(?<=at\s)|(?<=until\s)|(?<=till\s)|(?<=by\s)|(?<=after\s)|(?<=before\s)|(?<=around\s))"
_PAST = r"(?:[Hh]alf\spast|(?:[Qq]uarter|[Ff]ive|[Tt]en|[Tt]wenty|[Tt]wenty-five)\s(?:past|to))\s"
_EQUALS = "=≤≥≠≦≧≈→⇒±×∈+"  # beside variables
_LINKED = r"(?:\s?[-–—]\s?|\s(?:to|until|till|and|or)\s)"
_BBCODE = (
    "b|i|u|s|url|img|quote|code|color|size|list|center|email|font|sup|sub|youtube|spoiler|h[1-6]"
)
# Words after a full stop whose space is missing, rather than a part of a name in code.
_COMMON = (
    "(?:a|all|an|and|are|as|at|be|but|by|can|did|do|for|from|get|go|had|has|have|he|her|his|how|i|if"
    "|in|is|it|its|just|let|like|me|my|no|not|now|of|on|or|our|she|so|that|the|their|then|there|they"
    "|this|to|up|was|we|were|what|when|where|which|who|why|will|with|yes|you|your)"
)
# Words after a path, rather than of its name.
_JOINS = r"(?:an|and|are|as|before|by|from|if|into|is|onto|or|so|than|then|to|was|when|with)\b"
_LETTERS = "À-ÖØ-öø-ɏͰ-ӿ"
_MIXED = r"(?:[A-Za-z]{1,20}\d|\d{1,40}[A-Za-z])[A-Za-z0-9]*+"
# Placeholders with one of these signs between them are one thing: models separate them.
_JOINT = r"[/:@–-]"
_BRACED = r"[$%\#@!]?\{\s?[^\s{}]{0,100}+\s?\}"
_PRINTF = r"""(?:%%(?:[sdiufxc](?!\w))?                              # %% %%s
        |%(?:\(\w{1,64}+\)|\d{1,2}\$)?[-+\#0']{0,3}(?:\d{1,3}|\*)?
        (?:\.(?:\d{1,3}|\*))?(?:hh?|ll?|[qjztL])?[diouxXeEfFgGcCrsSaAnp@]
        (?:px|ms|x|s|em|kB|KB|MB|GB|h|min|km|m|cm|mm|kg)?(?![A-Za-z]))"""

THING = re.compile(
    rf"""
    (?P<WORDS> (?<![\w'’.-])(?<![{_EQUALS}][ ])(?:(?!No[ ]\d|{_PAST}\d|[A-Za-z][ ][{_EQUALS}])
        [A-Za-z{_LETTERS}][a-z{_LETTERS}]*+,?[ ])++
      | &(?:quot|apos|\#0?3[49]|(?<=\w&)(?:rsquo|\#8217|\#x27)(?=;\w)); )  # no things: skipped
  | (?P<CODE> `[^`\n]{{1,200}}+` )
  | (?P<URL> (?<!\w)(?:[A-Za-z][a-z0-9+.-]{{1,15}}+://|mailto:(?=\w)|www\.(?=\w))
        [^\s<>"'`«»“”„{{}}]++ )
  | (?P<EMAIL> (?<![\w.+-])[\w.+-]{{1,64}}+@[\w-]{{1,63}}+(?:\.[\w-]{{1,63}}+){{1,8}}+ )
  | (?P<TEMPLATE>
        \{{\{{\{{?[^{{}}\n]{{1,200}}+\}}\}}\}}?                           # {{{{ count }}}}
      | \{{%[^\n]{{0,300}}?%\}} | \{{\#[^\n]{{0,200}}?\#\}}              # {{% if x %}}
      | <%[^\n]{{0,300}}?%> | <\?[^\n]{{0,200}}?\?> | \[%[^\n]{{0,200}}?%\]
      | [$%\#@!]?\{{(?=[^{{}}\n]{{0,100}}[\s:,|()\[\]])[^{{}}\n]{{1,100}}+\}}  # {{0:dd MMM}}
      | (?<!\w)_{{2,4}}(?!_)\w{{1,64}}?_{{2,4}}(?!\w)                  # __name__
      | @@\w{{1,64}}?@@ | %%[A-Za-z_]\w{{1,64}}?%% | \#\#\w{{1,64}}?\#\#
      | \$\$[^$\n]{{1,100}}+\$\$                                       # $$x$$
      | \[\[[\w .:-]{{1,60}}+\]\]
      | &(?!quot;|apos;|\#0?3[49];)(?!(?<=\w&)(?:rsquo|\#8217|\#x27);\w)
        (?:amp;(?=\#?\w{{2,8}};))?
        (?:\#\d{{1,7}}|\#x[\da-fA-F]{{1,6}}|[A-Za-z]{{2,10}}\d{{0,2}});  # &amp;
    )
  | (?P<PLACEHOLDER>
        </?[A-Za-z][\w:.-]{{0,40}}+(?:\s[^<>\n]{{0,300}}+)?/?>        # <x id="7"/>
      | </?\d{{1,4}}\s?/?>                                           # <0> </0> <1/>
      | \{{/[^\s{{}}]{{1,100}}+\}}                                         # {{/link}}
      | {_BRACED}(?:{_JOINT}(?!\{{/){_BRACED})*+                      # {{name}} ${{var}} %{{n}}
      | (?<!%){_PRINTF}++(?:{_JOINT}{_PRINTF}++)*+                   # %s %1$s %(n)d %d%% %s/%s
      | (?<![\w%])%L?\d{{1,2}}+(?!\w)                                  # %1
      | (?<![\w%])%\w{{2,64}}+%(?!\\)                                 # %PATH%
      | (?<![^\W\d]|\$)\$[A-Za-z_]\w{{0,64}}+\$?                       # $HOME
      | \[/?(?:{_BBCODE})(?:=[^\[\]\n]{{1,200}}+)?\]
      | \[X\d{{1,9}}X\] | \[\d{{1,4}}\]                                # [X7X], of Weblate; [1]
      | (?<![\w@%./+-])@[A-Za-z]\w{{0,63}}+(?:[.-]\w{{1,63}}+){{0,4}}+  # @tom
        (?:@[\w-]{{1,63}}+(?:\.[\w-]{{1,63}}+){{1,4}}+)?
      | (?<![\w:]):[a-z_][a-z0-9_]{{1,40}}+(?![\w:])                  # :name
    )
  | (?P<SHORTCODE> (?<![\d_:])(?::[a-z0-9_+-]{{1,50}}+:(?!//))++(?:(?!\w)|(?=https?://)) )
  | (?P<PATH>
        (?<![\w\\:])(?:[A-Za-z]:[\\/](?![\\/])|\\\\[\w.-]{{1,64}}+\\|\.{{1,2}}\\(?=\w)|~\\|%\w{{1,40}}%\\)
        [^\s"'<>|*?,;()]{{0,250}}+                                    # C:\Users\Anna
        (?:(?:[ ][\w().&-]{{1,40}}+){{1,4}}\\[^\s"'<>|*?,;()]{{0,250}}+){{0,4}}+   # Program Files
        (?:(?<=[\w&-])(?<!\.\w\w)(?<!\.\w\w\w)(?<!\.\w\w\w\w)(?:
            (?:[ ](?!{_JOINS})[\w()&-]{{1,40}}){{1,6}}?\.(?:{_FILES})(?!\w)       # new file.txt
          | (?:[ ][\w()&-]{{1,40}}){{1,6}}?\.(?:{_FILES})(?=["'”’“])
          | (?:[ ](?!I\b)[A-Z]\w{{0,40}}+(?![\w.:'’]))+(?:[ ]\(x86\))?))?
      | (?<![\w/.:<>~])(?:~|\.{{1,2}})?/(?=[\w.])[\w.@+~%-]++(?:/[\w.@+~%-]*+)*+     # /etc/hosts
      | (?<![\w/.@-])[\w.@-]{{1,64}}+(?:/[\w.@-]{{1,64}}+){{0,8}}?/[\w-]{{1,64}}\.[A-Za-z]\w{{0,8}}+
    )
  | (?P<ESCAPE> (?<!\\)\\[A-Za-z]{{2,20}}+(?=\{{)                    # \textbf{{}}
      | (?<!\\)(?:\\[nrt])++                                         # \n, two characters
      | (?<!\\)\\{{2,8}}+[A-Za-z]?(?!\w)                            # \\n
      | \\u[\da-fA-F]{{4}} | \\x[\da-fA-F]{{2}} | (?<!\\)\\(?![nrtux])[A-Za-z]{{2,20}}+(?!\\) )
  | (?P<TIME> (?<!\w){_PAST}{_CLOCK}\s?{_HALF}                      # half past 7 pm
      | (?<!\w)(?:[Hh]alf\spast|[Qq]uarter\s(?:past|to))\s\d{{1,2}}(?![\w%]|[.,:/-]\d)
      | (?<![\w.,:/])(?:{_CLOCK}(?:\s?{_HALF})?{_LINKED})?{_CLOCK}\s?{_HALF}
      | (?<![\w.,:/])\d{{1,2}}(?:\so['’]clock(?:\s{_PART_OF_DAY}|\sat\snight)?
        |(?:[:.][0-5]\d)?\s{_PART_OF_DAY})(?!\w)
      | {_AT}\d{{1,2}}(?:[:.][0-5]\d)?\sat\snight(?!\w)
      | (?<![\w.,:/])12(?:[:.]00)?\s(?:noon|midnight)(?!\w)
      | {_AT}(?:[01]\d|2[0-3])[0-5]\d\s(?:hours|hrs)(?!\w) )          # 1500 hours
  | (?P<NUMERO> (?<![\w-])(?:(?:[Nn]os?|NOS?)\.:?|(?<=\w\s)No:?(?=\s))\s?
        [A-Z]{{0,4}}[-/]?\d++(?:[.,/-][A-Z0-9]++)*+[A-Za-z]?(?!\w) | №\s?\d++ )
  | (?P<AMOUNT> (?<![\w$€£¥])(?:
        (?:(?:(?<=[\s(])|\A)[-−+])?(?:[A-Z]{{1,2}}[$£]|[{CURRENCIES}])
        \s?{_AMOUNT}(?:k|K|M|m|bn|B|{_DASHES}|[-–]{_AMOUNT})?(?!\w)
      | Fr\.\s?{_AMOUNT}{_DASHES}?(?!\w) | (?<![.,]){_AMOUNT}{_DASHES}(?=\s\w)
      | (?:{_CURRENCY_CODES})[\s\u00a0]?{_AMOUNT}{_DASHES}?(?!\w)
      | (?<![.,]){_AMOUNT}{_DASHES}?[\s\u00a0\u202f]?
          (?:[{CURRENCIES}](?![\w{{]|\s?\d)|(?:{_CURRENCY_CODES}|kr|zł|Kč|Ft)(?!\w))) )
  | (?P<FEET> (?<![\w.,])\d++(?:[.,]\d++)?['’′]\s?\d{{1,2}}+(?:[.,]\d++)?(?:["”″]|'')
      | (?<![\w.,])\d++(?:[.,]\d++)?[′″‴] )
  | (?P<PHONE> (?<!\w)\+\d{{1,4}}+[\s-]?(?:[\s-]?\(?\d{{1,5}}+\)?){{2,6}}+(?!\w) )
  | (?P<GROUPS> (?<![\w.,-])[A-Z]{{2}}\d{{2}}(?:\s[A-Z0-9]{{4}}){{2,7}}+    # IBAN
        (?:\s[A-Z0-9]{{1,3}})?(?!\w)
      | (?<![\w.,-])\d{{4}}(?:\s\d{{4}}){{2,4}}+(?!\w) )
  | (?P<ORDINAL> (?<![\w.,])\d{{1,6}}+(?:st|nd|rd|th)(?!\w) )
  | (?P<DECADE> (?<![\w.,])(?:['’]\d0['’]?|\d{{2,3}}0['’]?|\d0['’])s(?!\w)
      | (?:(?<=the\s)|(?<=early\s)|(?<=late\s)|(?<=mid[\s-]))\d0s(?!\w) )
  | (?P<UNIT> (?:(?<=[\s(])|\A)[-−+]?{_AMOUNT}
        (?:(?:{_GLUED})|[\s\u00a0\u202f](?:{_APART}))(?![\w/²³%{{]
        |\(\w{{1,64}}\)[A-Za-z]) )                                  # not of 5 %(n)d
  | (?P<HOST> (?<![\w@.-])(?:[\w-]{{1,63}}\.){{1,6}}?(?:{_SUFFIXES})(?![\w-]|\.\w)(?::\d{{1,5}}+)?
        (?:/[^\s<>"'`«»“”„{{}}]*+)?
      | (?<![\w@.-])(?:[\w-]{{1,63}}\.){{1,6}}?(?:{_FILES}|{_FILES.upper()})(?![\w-]|\.\w)
      | (?<![\w@.-])[a-z_]\w{{0,40}}+(?:\.[a-zA-Z_]\w{{1,40}}+){{2,8}}+(?![\w.]\w)   # os.path.join
      | (?<![\w@.-])[a-z_]\w{{1,40}}+\.(?!{_COMMON}\b)[a-z_]\w{{1,40}}+(?![\w.]\w)  # console.log
      | (?<![\w@.-])\w{{1,40}}+(?:(?:\.|::)\w{{1,40}}+){{0,6}}+\(\)           # run()  Path.open()
      | (?<![\w@.:-])\w{{1,40}}+(?:::\w{{1,40}}+){{1,6}}+                   # std::string
      | (?<!\S)\.[a-z][\w-]{{2,30}}+(?!\S|\.)                           # .gitignore
    )
  | (?P<IDENTIFIER> (?<!\w)[A-Za-z](?=[ ][{_EQUALS}]) | (?<=[{_EQUALS}][ ])[A-Za-z](?!\w)   # a ≤ b
      | (?<!\w)(?:Ctrl|Alt|AltGr|Shift|Cmd|Win|Fn)(?:\+\w{{1,12}}+){{1,4}}+   # Ctrl+C
      | (?<![\w&])\#\w++                                   # #travel
      | (?<![\w-])--[a-z][\w-]*+(?:=[^\s"',;]++)? | (?<=[\w`]\s)-[a-zA-Z](?![\w-])
      | (?<!\w)(?=\w{{0,80}}?[^\W_]_++[^\W_])\w++(?:-\w++)*+            # foo_bar
      | (?<!\w)(?=[\da-fA-F-]{{0,80}}?\d[\da-fA-F-]{{0,80}}?[a-fA-F])
        [\da-fA-F]{{7,128}}+(?:-[\da-fA-F]{{4,}}+)*+(?!\w)                # UUIDs, hashes
      | (?<![\w.,])(?:[A-Z0-9]{{1,12}}+[-./:]){{0,5}}?{_MIXED}
        (?:[-./:+](?:{_MIXED}|[A-Z0-9]++))*+(?!\w)                      # A1000, ISO-8859-1
      | (?:(?<=BIC\s)|(?<=BIC:\s)|(?<=SWIFT\s))[A-Z\d]{{8,11}}+(?!\w)
      | (?<!\w)(?=[A-Z]{{0,20}}?[B-DF-HJ-NP-TV-XZ]{{5}})[A-Z]{{6,30}}+(?!\w)   # XKCDQRST
      | (?<![\w.,])[A-Z]{{1,8}}[-/]\d++(?:[-./][A-Z0-9]++)*+(?!\w)
      | (?<![\w.,])\d++[-/][A-Z]{{1,8}}\d*+(?:[-./][A-Z0-9]++)*+(?!\w)
    )
  | (?P<NAME> (?<![\w'’-])(?=[A-Za-z]{{0,40}}?[a-z][A-Z])[A-Za-z]++(?!\w) )      # getName iPhone
  | (?P<ACRONYM> (?<![\w'’.&-])[A-Z]{{2,6}}(?![\w'’&-]|\.\w) )
  | (?P<SIGN> (?<!\w)(?=\w{{0,40}}?[{NORMALISED}])(?![^\W\d_{_RAISED}]{{3,}}[{_RAISED}]+(?!\w))\w++
      | [{NORMALISED}]++
      | (?P<line>[-=~*_\#+^.])(?P=line){{4,}}+ )                           # ------
  | (?P<EMOJI> (?:[\#*0-9]\ufe0f?\u20e3
      | [{PICTURES}][{_MARKS}]{{0,3}}+(?:\u200d[{PICTURES}][{_MARKS}]{{0,3}}+)*+)++ )
  | (?P<SYMBOL> [{SYMBOLS}]
      | (?<!\S)(?:<?[-=]{{1,2}}>|<[-=]{{1,2}}|[!=<>]=|==|&&|\|\||>>|<<|:=)(?!\S) )   # -> >= &&
  | (?P<PRIVATE> [{PRIVATE}]++ )
  | (?P<NUMBER> (?:(?:(?<=[\s(])|\A)[-−+±](?=\d))?
        (?<!\w)(?<!\d[.,:/'’-])(?![\uff10-\uff19]){_NUMBER}(?![\w\u20e3\ufe0f]) )
    """,
    re.VERBOSE,
)
"""Each group but WORDS is a form of things (`things.py`)."""

SOUND = re.compile(
    r"""(?<![\w'’-])(?:(?i:(?P<unit>[^\W\d_]{2,4})(?P=unit){2,}h?)
      | (?=[a-zA-Z]{0,9}?(?i:(?P<letter>[a-zA-Z])(?P=letter){2}))
        (?i:[aeou]++h*+|h++m++|m++h*+m*+|z++|b++r++|g++r++|s++h++|w[aeo]++h*+|u++g++h++|e++w++|p++s++t++))(?!\w)
      | (?<![\w'’-])(?=[A-Za-z]{0,40}?(?P<long>[a-z])(?P=long)(?P=long))[A-Za-z]{4,60}+(?!\w)""",
    re.VERBOSE,
)
"""Words that say a sound, however long: hahaha, Aaaah; and drawn-out words: Soooo."""

ZONE = re.compile(_ZONE)
"""A time zone after a time."""

ATOMIC = re.compile(
    rf"""(?<!\S)[^\s/\\@_]{{0,100}}+[/\\@_]\S{{0,300}}(?<=\w)(?!\w)   # https://a.org/A.B
      | (?<![\w.])[A-Za-z_][\w-]{{0,60}}+(?:\.[\w-]{{1,60}}+){{2,8}}+(?!\w)       # java.util.List
      | (?<![\w.])[\w-]{{1,64}}+\.(?:{_FILES.upper()})(?!\w) | (?<=\d){_DASHES}(?!\d)
    """
    r"""| `[^`\n]{1,200}+` | \{%[^\n]{0,300}?%\} | \{\{[^{}\n]{1,200}+\}\}
      | \{[^{}\n]{1,100}+\} | <%[^\n]{0,300}?%> | </?[A-Za-z][^<>\n]{0,300}+>
      | (?<![\w-])(?:[Nn]os?|NOS?)\.:?\s?(?=[A-Z]{0,4}[-/]?\d)
      | (?<=\d)\s?[aApP]\.\s?[mM]\.(?=\s+[^\sA-Z]|[,;:)]) """
    rf"| (?<=\d)\s?[aApP]\.\s?[mM]\.(?={_ZONE})",
    re.VERBOSE,
)
"""Things with signs in them that would end a sentence."""

# --- words in another script ----------------------------------------------------------------------

_WIDE = "wide"
_WRITE_WIDE = frozenset(["CJK", "HIRAGANA", "HANGUL"])
_RANGES = {
    "LATIN": "A-Za-zªº\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff",
    "GREEK": "\u0370-\u03ff\u1f00-\u1fff",
    "CYRILLIC": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "ARMENIAN": "\u0530-\u058f",
    "HEBREW": "\u0590-\u05ff\ufb1d-\ufb4f",
    "ARABIC": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefe",
    "DEVANAGARI": "\u0900-\u097f\ua8e0-\ua8ff",
    "BENGALI": "\u0980-\u09ff",
    "GUJARATI": "\u0a80-\u0aff",
    "TAMIL": "\u0b80-\u0bff",
    "TELUGU": "\u0c00-\u0c7f",
    "KANNADA": "\u0c80-\u0cff",
    "MALAYALAM": "\u0d00-\u0d7f",
    "SINHALA": "\u0d80-\u0dff",
    "THAI": "\u0e00-\u0e7f",
    "LAO": "\u0e80-\u0eff",
    "MYANMAR": "\u1000-\u109f",
    "GEORGIAN": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "HANGUL": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff",
    "ETHIOPIC": "\u1200-\u139f\u2d80-\u2ddf",
    "KHMER": "\u1780-\u17ff",
    "HIRAGANA": "\u3040-\u309f",
    "KATAKANA": "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "CJK": "\u2e80-\u2fdf\u3001-\u3003\u3008-\u3011\u3014-\u301b"
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u3005-\u3007\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff",
    # Letters and digits that are wide or mathematical.
    _WIDE: "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff",
    # Of no language that the server knows by its script.
    "": "\u0700-\u074f\u0780-\u07ff\u0800-\u085f\u0a00-\u0a7f\u0b00-\u0b7f\u0f00-\u0fff"
    "\u13a0-\u177f\u1800-\u1aaf\u1b00-\u1c7f\u2c00-\u2c5f\u2c80-\u2cff\u2d30-\u2d7f\ua000-\ua63f\ua6a0-\ua6ff"
    "\ua800-\ua8df\ua900-\uabff\U00010000-\U0001cfff\U0001e000-\U0001efff",
}


def is_latin(language: str) -> bool:
    """Whether a language is written in Latin letters."""
    return "LATIN" in scripts_of(language)


_WITHOUT_ADDED = "af ca da de en es eu fi fr ga gl id is it lb ms nb nl nn no pt sv"
_ADDED = "\u0100-\u0151\u0154-\u0177\u0179-\u024f\u1e00-\u1eff"  # without œ and Ÿ
_NORDIC = "ÃÅÆÐÕØÝÞãåæðõøýþ"  # and Portuguese


def _word_with(letters: str) -> re.Pattern[str]:
    latin = f"[{_RANGES['LATIN']}]"
    return re.compile(
        rf"(?<![\w'’-])(?={latin}{{0,40}}?[{letters}]){latin}++(?:[-'’]{latin}++)*+(?!\w)"
    )


_ADDED_WORD, _ADDED_OR_NORDIC = _word_with(_ADDED), _word_with(_ADDED + _NORDIC)


def added_letters(text: str, language: str) -> re.Pattern[str] | None:
    """The pattern of words with Latin letters that a language lacks; None if there are none."""
    if text.isascii() or primary_subtag(language) not in _WITHOUT_ADDED.split():
        return None
    words = _ADDED_OR_NORDIC if language[:2].lower() in ("de", "en") else _ADDED_WORD
    return words if words.search(text) else None


def foreign_words(language: str) -> re.Pattern[str] | None:
    """The pattern of words in scripts that a language lacks; None if its scripts are unknown."""
    own = scripts_of(language)
    return _words_beside(own) if own else None


@functools.cache
def _words_beside(own: tuple[str, ...]) -> re.Pattern[str]:
    used = {*own, _WIDE} if _WRITE_WIDE.intersection(own) else own
    others = "".join(ranges for script, ranges in _RANGES.items() if script not in used)
    marks = "\u0300-\u036f\u200c\u200d\u30fb"
    return re.compile(rf"[{others}][{others}{marks}]*+(?:[ ·'’-][{others}][{others}{marks}]*+)*+")
