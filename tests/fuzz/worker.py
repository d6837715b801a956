"""A process that feeds one reader a range of hostile inputs: `python -m tests.fuzz.worker READER SEED FIRST END FOLDER`.

It says on standard output, a line of JSON each, what it finds and, now and then, how far it is. Address space is bounded, so that an input that asks for
too much fails here; an input may use five seconds of processor time. Inputs below 0 are paths that cannot be read. Which input is being read stands in
`FOLDER/now`, should the process die of it.
"""

import json
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from gdp.errors import InputError
from tests.fuzz.mutant import HOSTILE_PATHS, Files, Mutant, hostile_path
from tests.fuzz.reader import Reader

SECONDS_PER_INPUT = 5.0
"""Of processor time."""

ADDRESS_SPACE_BYTES = 2**30
"""Beyond what the process has before the first input."""

_REPORT_EVERY = 100


class Hang(BaseException):
    """The input has used up its time. No `Exception`, so that no reader takes it for a fault of the file."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `Hang` in the body once it has used `seconds` of processor time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    former = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)


def mutant_of(reader: Reader, samples: Sequence[Files], seed: int, index: int) -> Mutant:
    """The input of this number: the same one every time."""
    return reader.mutate(samples, Random(f"{reader.name}/{seed}/{index}"))


def outcome(reader: Reader, mutant: Mutant, folder: Path, *, seconds: float = SECONDS_PER_INPUT) -> tuple[str, str]:
    """What becomes of an input: `refused`, `accepted`, or what is wrong (`crash`, `hang`, `silent`) with its reason."""
    given, again = folder / "given", folder / "again"
    for each in (given, again):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    mutant.lay(given)
    try:
        with time_limit(seconds):
            record = reader.read(given / reader.target if reader.target else given)
            form = reader.form(record)
    except InputError as error:
        return ("crash", "an error of more than one line") if "\n" in str(error) else ("refused", "")
    except Hang:
        return "hang", f"over {seconds} s: {mutant.how}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "crash", _place(error)
    if mutant.wrong:
        return "silent", f"accepted: {mutant.how}"
    try:
        lost = reader.lost(mutant.files, record)
        if lost:
            return "silent", f"lost {lost}: {mutant.how}"
        reader.write(again / (reader.target or "again"), record)
        same = reader.form(reader.read(again / (reader.target or "again"))) == form
    except BaseException as error:
        return "silent", f"cannot be written and read again: {_place(error)}"
    return ("accepted", "") if same else ("silent", f"another record when written and read again: {mutant.how}")


def outcome_of_path(reader: Reader, kind: str, folder: Path) -> tuple[str, str]:
    """What becomes of a name that cannot be read."""
    shutil.rmtree(folder / "path", ignore_errors=True)
    (folder / "path").mkdir()
    path = hostile_path(kind, folder / "path", Path(reader.target).suffix)
    try:
        with time_limit(SECONDS_PER_INPUT):
            reader.read(path)
    except InputError:
        return "refused", ""
    except Hang:
        return "hang", f"a path: {kind}"
    except BaseException as error:
        return "crash", f"a path, {kind}: {_place(error)}"
    if reader.may_be_absent and kind in ("missing", "surrogate", "newline", "empty", "dangling"):
        return "accepted", ""
    return "silent", f"a path was accepted: {kind}"


def bound_memory(extra_bytes: int) -> None:
    """Bounds the address space of this process to what it has now and `extra_bytes`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _place(error: BaseException) -> str:
    """The error in one line, and where in gdp it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/gdp/" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside gdp"
    return f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:200]}"


def _memory_bytes(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main(name: str, seed: int, first: int, end: int, folder: Path) -> None:
    from tests.fuzz.readers import READERS

    warnings.simplefilter("error")
    reader = next(reader for reader in READERS if reader.name == name)
    samples = list(reader.samples())
    now = os.open(folder / "now", os.O_RDWR | os.O_CREAT)
    counts = {"refused": 0, "accepted": 0}
    for sample in samples:
        kind, reason = outcome(reader, Mutant(files=sample, how="nothing"), folder, seconds=60.0)
        assert kind == "accepted", f"a sample of {name} is {kind}: {reason}"
    resident_bytes = _memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    bound_memory(ADDRESS_SPACE_BYTES)
    _say(done=0, **counts, peak_bytes=0)
    for index in range(first, end):
        os.pwrite(now, f"{index:>12}".encode(), 0)
        if index < 0:
            verdict, reason = outcome_of_path(reader, HOSTILE_PATHS[index], folder)
        else:
            verdict, reason = outcome(reader, mutant_of(reader, samples, seed, index), folder)
        if verdict in counts:
            counts[verdict] += 1
        else:
            _say(found=verdict, index=index, reason=reason)
        if (index + 1 - first) % _REPORT_EVERY == 0 or index + 1 == end:
            _say(done=index + 1 - first, **counts, peak_bytes=max(0, _memory_bytes("VmHWM") - resident_bytes))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5]))
