"""Changes of JSON and YAML documents that know their structure: keys twice or unknown, values of a wrong type or out of all bounds, nesting, anchors."""

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.fuzz.mutant import Mutant
from tests.fuzz.octets import mutated_bytes


class Token(str):
    """Text that stands in a document as it is."""


class Pairs(list):
    """A mapping as its pairs, so that a key may be there twice."""


Path = tuple[str | int, ...]
IsFree = Callable[[Path], bool]
"""Whether what stands at a path may be anything, so that no change there is wrong."""

_NOT_FINITE = {"json": ("NaN", "Infinity", "-Infinity", "1e309"), "yaml": (".nan", ".inf", "-.inf")}
_NUMBERS = (
    *("0", "-1", "1", "7", "64", "65", "-0", "0.0", "-0.0", "0.5", "1e-320", "5e-324", "1e15", "1.7e308", "1e18", "9007199254740993"),
    *(
        "2147483647",
        "2147483648",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551616",
    ),
    *("1152921504606846976", "1152921504606846977", "144115188075855872", "1" + "0" * 39, "9" * 400, "true", "false", "null"),
)
_TEXTS = ('""', '"\\u0000"', '"\\ud800"', '"\\u2028"', '"\x7f"', '"../../etc/passwd"', '"' + "x" * 5000 + '"', '"1"', '"\\u001b[2J"')
_YAML_TOKENS = (
    *(
        "1:30",
        "0x7f",
        "0o17",
        "0b11",
        "1_000",
        "~",
        "2001-01-01",
        "2001-99-99",
        "!!int x",
        "!!float x",
        "!!binary x",
        "!!timestamp x",
        "!!set {a}",
    ),
    *(
        "!!python/object/apply:os.system [true]",
        "!!omap [a: 1, a: 2]",
        "!x y",
        "*unknown",
        "&a [*a]",
        "&b {<<: *b}",
        "{<<: 1}",
        "? x",
        "<<",
        "=",
    ),
    *(
        "1e5",
        "+1",
        "1.",
        ".5",
        "yes",
        "on",
        "|\n  x",
        "- - - x",
        "%YAML 9.9",
        "---\n",
        "...\n",
        "\t",
        "@",
        "`",
        "{? {a: 1} : 2}",
        "!!str 1",
    ),
)


def mutated_document(
    text: bytes, tree: Any, rng: Random, *, format: str, is_free: IsFree, others: Sequence[bytes] = ()
) -> tuple[bytes, str, bool]:
    """A changed document: its bytes, what was changed, and whether no reader may accept it.

    Args:
        text: the valid document.
        tree: what it holds.
        rng: decides.
        format: `json` or `yaml`.
        is_free: the paths at which anything is allowed.
        others: valid documents of the same format, to splice with.
    """
    choice = rng.randrange(10)
    if choice < 3:
        changed, how = mutated_bytes(text, rng)
        return changed, how, False
    if choice == 3:
        return _as_a_whole(text, rng, format, others)
    whole = _pairs(copy.deepcopy(tree))
    wrong, names = False, []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        how, is_wrong = _change(whole, rng, format, is_free)
        names.append(how)
        wrong |= is_wrong
    # A later change may take away what made an earlier one wrong.
    return _encoded(whole).encode("utf-8", "surrogatepass"), "; ".join(names), wrong and len(names) == 1


def document_mutant(
    name: str, text: bytes, tree: Any, rng: Random, *, format: str, is_free: IsFree, others: Sequence[bytes] = ()
) -> Mutant:
    """`mutated_document` as the only file of an input."""
    changed, how, wrong = mutated_document(text, tree, rng, format=format, is_free=is_free, others=others)
    return Mutant(files={name: changed}, how=how, wrong=wrong)


def _as_a_whole(text: bytes, rng: Random, format: str, others: Sequence[bytes]) -> tuple[bytes, str, bool]:
    match rng.randrange(9):
        case 0:
            depth = rng.choice((10, 100, 900, 1100, 30_000))
            opening, closing = rng.choice((("[", "]"), ('{"a":', "}"), ("- ", "")))
            return (opening * depth + "1" + closing * depth).encode(), f"nested {depth} deep", True
        case 1:
            place = rng.randrange(1, max(2, len(text.rstrip())))
            return text[:place], f"cut at {place}", format == "json"
        case 2:
            encoding = rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-be", "latin-1"))
            return text.decode().encode(encoding, "replace"), f"as {encoding}", False
        case 3:
            return text + rng.choice((b" x", b"{}", b"]", b"\0", b",")), "something behind the end", format == "json"
        case 4:
            other = rng.choice((b"", b" ", b"null", b"[]", b"{}", b"0", b'""', b"[[]]", b"\xff", b"\0"))
            return other, f"{other!r} alone", other != b"{}"
        case 5:
            return (rng.choice(others) if others else text) + text, "two documents", format == "json"
        case 6:
            place = text.find(b'"') + 1 if format == "json" else 0
            return text[:place] + b"\xff" + text[place:], "a byte that is no UTF-8", True
        case 7 if format == "yaml":
            levels = rng.choice((5, 9, 30))
            bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, levels))
            merge = "a0: &a0 {x: 1, y: 2}\n" + "".join(
                f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, levels)
            )
            return rng.choice((bomb, merge)).encode() + text, f"a bomb of {levels} levels", True
        case _:
            count = rng.choice((10, 1000, 50_000))
            return b"[" + b",".join([b"0"] * count) + b"]", f"a list of {count}", True


def _change(whole: Pairs, rng: Random, format: str, is_free: IsFree) -> tuple[str, bool]:
    places = list(_places(whole, ()))
    if not places:
        return "nothing", False
    path, parent, key = rng.choice(places)
    free = is_free(path)
    old = parent[key]
    value = old[1] if isinstance(parent, Pairs) else old

    def put(new: Any) -> None:
        parent[key] = (old[0], new) if isinstance(parent, Pairs) else new

    at = f"at {'.'.join(map(str, path))}"
    choice = rng.randrange(13)
    match choice:
        case 0:
            put(Token(rng.choice(_NUMBERS)))
            return f"a number {at}", False
        case 1:
            token = rng.choice(_NOT_FINITE[format])
            put(Token(token))
            return f"{token} {at}", not free or format == "json"
        case 2:
            put(Token(rng.choice(_TEXTS)))
            return f"a text {at}", isinstance(value, int | float) and not isinstance(value, bool) and not free
        case 3 if isinstance(parent, Pairs):
            parent.insert(rng.randrange(len(parent) + 1), (old[0], copy.deepcopy(value)))
            return f"the key twice {at}", True
        case 4:
            target = next((node for node in (value, parent) if isinstance(node, Pairs)), None)
            if target is None:
                put(Pairs([("x", 1)]))
                return f"a mapping {at}", not free
            inside = path if target is value else path[:-1]
            name = rng.choice(("unknown", "_target_", "__class__", "", "schema ", "x" * 300))
            target.insert(rng.randrange(len(target) + 1), (name, 1))
            return f"an unknown key {at}", not is_free((*inside, name))
        case 5:
            del parent[key]
            return f"nothing {at}", False
        case 6 if not isinstance(value, list):
            put(rng.choice(([], [value], [[value]])))
            return f"a list {at}", not free
        case 7 if isinstance(value, list):
            put(rng.choice((1, "x", None, Token("true"))))
            return f"no list {at}", not free and value != []
        case 8 if isinstance(parent, list) and not isinstance(parent, Pairs):
            parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(value))
            return f"an item twice {at}", False
        case 9:
            other = rng.choice(places)
            other_value = other[1][other[2]]
            put(copy.deepcopy(other_value[1] if isinstance(other[1], Pairs) else other_value))
            return f"the value of {'.'.join(map(str, other[0]))} {at}", False
        case 10 if format == "yaml":
            put(Token(rng.choice(_YAML_TOKENS)))
            return f"a YAML token {at}", False
        case 11 if isinstance(value, int | float) and not isinstance(value, bool):
            put(rng.choice((-value, value * 2, value + 1, value / 3, value * 1e9, -1)))
            return f"another number {at}", False
        case 12 if isinstance(parent, Pairs):
            parent[key] = (rng.choice((old[0].upper(), old[0] + "\u200b", old[0][:-1], "\ud800", "a.b", "0")), value)
            return f"another key {at}", not free
        case _:
            rng.shuffle(parent)
            return f"shuffled {at}", False


def _places(node: Any, path: Path) -> Any:
    """`(path, parent, key)` of everything in the document but its top."""
    if isinstance(node, list):
        for key, item in enumerate(node):
            name, value = item if isinstance(node, Pairs) else (key, item)
            yield (*path, name), node, key
            yield from _places(value, (*path, name))


def _pairs(node: Any) -> Any:
    if isinstance(node, dict):
        return Pairs((name, _pairs(value)) for name, value in node.items())
    return [_pairs(item) for item in node] if isinstance(node, list) else node


def _encoded(node: Any) -> str:
    """JSON, which YAML reads, too, as long as no key is longer than a YAML reader looks ahead."""
    if isinstance(node, Pairs):
        return "{" + ", ".join(f"{json.dumps(name)}: {_encoded(value)}" for name, value in node) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(_encoded(item) for item in node) + "]"
    if isinstance(node, Token):
        return str(node)
    return json.dumps(node)
