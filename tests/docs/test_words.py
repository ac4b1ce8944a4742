"""The names on the way of a message are plain words, not a private vocabulary."""

import re

from tests.docs.markdown_blocks import ROOT

#: Nouns that once had to be learned before a send could be followed.
PRIVATE = re.compile(
    r"\b(parcel|lane|flight|office|ticket|boarding|visitor|detour|bell|gate|teller|desk|crowd)s?\b"
)
ROOMS = ("core", "wire", "aio", "sync", "system", "columns")


def test_modules_classes_and_functions_have_plain_names():
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path.relative_to(ROOT / "src").parts[1] not in ROOMS:
            continue
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"^ *(?:async )?(?:def|class) (\w+)", text, re.MULTILINE)
        for name in [path.stem, *names]:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("in_flight", "")
            if PRIVATE.search(words.replace("_", " ")):
                found.append(f"{path.name}: {name}")
    assert found == []
