"""The one exception that means "the user can mend this", and what its messages are made of."""

import difflib
import re
from collections.abc import Iterable

_MAX_WORD, _MAX_MESSAGE = 400, 4000


class InputError(ValueError):
    """A user's mistake: the message is one sentence saying what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with code 2. Every other exception is our own mistake.
    What a message quotes may come from anywhere, so it is made `printable`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(text: str) -> str:
    """`text` on one line that is safe to show: characters that do not print are escaped (`\\x1b`), words of over 400 characters and all that is over 4000 cut."""
    cut = re.sub(rf"\S{{{_MAX_WORD + 1},}}", lambda word: _shortened(word[0], _MAX_WORD), _shortened(text, _MAX_MESSAGE))
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in re.sub(r"\s*\n\s*", " ", cut))


def nearest_name_hint(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'? ` with the known name nearest to an unknown one, for the middle of a message; empty when none is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"did you mean {close[0]!r}? " if close else ""


def _shortened(text: str, length: int) -> str:
    """The beginning and the end, which says what to do."""
    return text if len(text) <= length else f"{text[: length * 3 // 4]}…{text[-length // 4 :]}"
