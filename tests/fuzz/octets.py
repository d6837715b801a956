"""Changes of bytes that know no format: cuts, flips, repeats, splices."""

from random import Random

_TOKENS = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"\r",
    b"\n",
    b"\x1b[31m",
    b"9" * 400,
    b"-1",
    b"1e309",
    b"nan",
    b"Infinity",
    b"[" * 2000,
    b"{" * 2000,
    b"../../etc/passwd",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
)


def mutated_bytes(data: bytes, rng: Random) -> tuple[bytes, str]:
    """`data` after one to four changes, and what they are."""
    changed, names = bytearray(data), []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(8):
            case 0:
                del changed[place:]
                names.append(f"cut at {place}")
            case 1:
                length = rng.choice((1, 1, 4, 64, 4096))
                del changed[place : place + length]
                names.append(f"{length} bytes deleted at {place}")
            case 2 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
                names.append(f"bit flipped in byte {place}")
            case 3 if place < len(changed):
                changed[place] = rng.randrange(256)
                names.append(f"byte {place} replaced")
            case 4:
                token = rng.choice(_TOKENS)
                changed[place:place] = token
                names.append(f"{token[:12]!r} inserted at {place}")
            case 5:
                start = rng.randrange(len(changed) + 1)
                piece = bytes(changed[start : start + rng.choice((1, 8, 100, 5000))])
                changed[place:place] = piece * rng.choice((1, 1, 2, 50))
                names.append(f"bytes from {start} repeated at {place}")
            case 6:
                other = rng.randrange(len(changed) + 1)
                length = rng.choice((1, 4, 8))
                changed[place : place + length] = changed[other : other + length]
                names.append(f"{length} bytes of {other} copied to {place}")
            case _:
                width = rng.choice((1, 2, 4, 8))
                changed[place : place + width] = rng.choice((b"\0", b"\xff", b"\x7f")) * width
                names.append(f"{width} bytes at {place} set")
    return bytes(changed), ", ".join(names)
