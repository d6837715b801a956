"""Changes of line-oriented texts: lines and numbers swapped, repeated, dropped, replaced."""

import re
from random import Random

from tests.fuzz.octets import mutated_bytes

_WORD = re.compile(r"[A-Za-z0-9_.+-]+")
_TOKENS = (
    *(
        "0",
        "-1",
        "1",
        "2",
        "3",
        "64",
        "99999999",
        "2147483648",
        "9223372036854775808",
        "9" * 400,
        "-0",
        "0.5",
        "1e15",
        "1e16",
        "1e308",
        "1e309",
    ),
    *(
        "nan",
        "inf",
        "-inf",
        "1_0",
        "0x10",
        "1e",
        "+1",
        "١",
        "Ⅷ",
        "",
        " ",
        ",",
        ";",
        "=",
        "[",
        "]",
        "[1;2]",
        "--",
        " -- ",
        "\t",
        "\x0b",
        "\u2028",
    ),
    *("x" * 5000, "Input", "Input(1)", "node1", "../x", "%s%n", "\x1b[2J", "\ufeff", "a.backward"),
)


def mutated_lines(text: bytes, rng: Random) -> tuple[bytes, str]:
    """A changed text, and what was changed."""
    if rng.randrange(10) < 3:
        return mutated_bytes(text, rng)
    lines = text.decode().split("\n")
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        number = rng.randrange(len(lines))
        words = list(_WORD.finditer(lines[number]))
        match rng.randrange(9):
            case 0:
                del lines[number]
                lines = lines or [""]
                names.append(f"line {number + 1} dropped")
            case 1:
                lines.insert(rng.randrange(len(lines) + 1), lines[number])
                names.append(f"line {number + 1} repeated")
            case 2:
                other = rng.randrange(len(lines))
                lines[number], lines[other] = lines[other], lines[number]
                names.append(f"lines {number + 1} and {other + 1} swapped")
            case 3 if words:
                word, other = rng.choice(words), rng.choice(words)
                lines[number] = lines[number][: word.start()] + other[0] + lines[number][word.end() :]
                names.append(f"{other[0][:20]!r} for {word[0][:20]!r} in line {number + 1}")
            case 4:
                place = rng.randrange(len(lines[number]) + 1)
                token = rng.choice(_TOKENS)
                lines[number] = lines[number][:place] + token + lines[number][place:]
                names.append(f"{token[:20]!r} put into line {number + 1}")
            case 5:
                end = rng.choice(("\r\n", "\r", "\x0c", "\x85", "\u2029"))
                text_now = "\n".join(lines).replace("\n", end, rng.choice((1, -1)))
                lines = text_now.split("\n")
                names.append(f"lines end in {end!r}")
            case 6:
                lines[number] = rng.choice(("", " ", "\t", "#", lines[number].strip(), " " + lines[number], lines[number] * 2))
                names.append(f"line {number + 1} changed as a whole")
            case _ if words:
                word, token = rng.choice(words), rng.choice(_TOKENS)
                lines[number] = lines[number][: word.start()] + token + lines[number][word.end() :]
                names.append(f"{token[:20]!r} for {word[0][:20]!r} in line {number + 1}")
            case _:
                names.append("nothing")
    return "\n".join(lines).encode("utf-8", "surrogatepass"), "; ".join(names)
