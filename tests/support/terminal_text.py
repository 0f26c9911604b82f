"""The characters of a text that a terminal executes or hides."""

import re
import unicodedata

UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4\U0001d159"


def is_safe(text: str, stays: str = "\n\t") -> bool:
    """Return whether a text contains nothing that a terminal executes: no control, format, private or
    separator characters."""
    bad = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    selected = any(unicodedata.name(sign, "").startswith("VARIATION SELECTOR") for sign in emoji_joined(text))
    obeyed = any(unicodedata.category(sign) in bad and sign not in stays for sign in text)
    return not obeyed and not selected and not {*UNSEEN} & {*text}


def emoji_joined(text: str) -> str:
    return re.sub("[❤☎\U0001f336]\ufe0f", "", text)
