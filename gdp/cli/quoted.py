"""Texts as Hydra's grammar of overrides reads them."""

import re


def quoted(value: str) -> str:
    """A text as Hydra's grammar reads it, whatever characters it has."""
    if re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./:@-]*( [A-Za-z0-9_./:@-]+)*", value):
        return value
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"'{escaped}'"
