"""A measured profile of others as MODEL: `graph.txt:KIND` (PipeDream) or `graph.txt:KIND:SECONDS_PER_UNIT:BYTES_PER_S` (DOPPLER), told apart by what the file holds."""

import re
from pathlib import Path

from gdp.bounded_file import read_bounded
from gdp.errors import InputError
from gdp.graph import Graph

_FORM = re.compile(r"(?P<path>.+\.txt)(:(?P<kind>[^:]+)(:(?P<unit>[^:]+):(?P<bandwidth>[^:]+))?)?")
_MAX_BYTES = 64 * 2**20


def is_profile(text: str) -> bool:
    """Whether `text` names a text file, with a kind of devices or without."""
    return re.fullmatch(r".+\.txt(:.*)?", text) is not None


def read_profile(text: str) -> Graph:
    """The graph of a profile, its times those of devices of the kind that `text` names.

    Raises `InputError` when the file is missing or wrong, the kind is left out, or a DOPPLER file comes without its units.
    """
    parts = _FORM.fullmatch(text)
    if parts is None:
        raise InputError(
            f"{text} is no profile; name it as graph.txt:KIND (PipeDream) or graph.txt:KIND:SECONDS_PER_UNIT:BYTES_PER_S (DOPPLER)"
        )
    path, kind = Path(parts["path"]), parts["kind"]
    first = read_bounded(path, what="the profile", advice="name a text file of PipeDream or DOPPLER", max_bytes=_MAX_BYTES).lstrip()[:100]
    doppler = first[:1].isdigit()
    if kind is None:
        form = "KIND:SECONDS_PER_UNIT:BYTES_PER_S" if doppler else "KIND"
        raise InputError(
            f"{path} does not say which devices it was measured on; name their kind as the cluster does: {path}:{form}, such as {path}:p100"
        )
    if doppler:
        from gdp.capture.doppler_txt import read_doppler

        if parts["unit"] is None:
            raise InputError(f"{path} is a DOPPLER file, whose costs have no unit; name it as {path}:{kind}:SECONDS_PER_UNIT:BYTES_PER_S")
        return read_doppler(
            path, kind=kind, seconds_per_unit=_number(parts["unit"], text), bandwidth_bytes_per_s=_number(parts["bandwidth"], text)
        )
    from gdp.capture.pipedream_txt import read_pipedream

    if parts["unit"] is not None:
        raise InputError(f"{path} is a PipeDream profile, whose units are known; name it as {path}:{kind}")
    return read_pipedream(path, kind=kind)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{text!r} in {where} is no number; write seconds and bytes as in 1e-6 and 1.2e10") from error
