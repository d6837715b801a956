"""The fuzzer itself finds what it is there to find: readers with a fault each, planted."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gdp.errors import InputError
from tests.fuzz import campaign as campaigns
from tests.fuzz.campaign import Figures, campaign
from tests.fuzz.documents import document_mutant
from tests.fuzz.mutant import HOSTILE_PATHS, Files, Mutant, hostile_path
from tests.fuzz.reader import Reader
from tests.fuzz.readers import READERS
from tests.fuzz.worker import mutant_of, outcome, outcome_of_path

DOCUMENT = b'{"name": "x", "values": [1, 2, 3]}'
WHOLE = Mutant(files={"x.json": DOCUMENT}, how="nothing")


def mutate(samples: Sequence[Files], rng: Random) -> Mutant:
    return document_mutant("x.json", DOCUMENT, json.loads(DOCUMENT), rng, format="json", is_free=lambda path: False)


def write(path: Path, record: Any) -> None:
    path.write_text(json.dumps(record))


def reader_with(read: Callable[[Path], Any]) -> Reader:
    return Reader(name="planted", target="x.json", samples=lambda: [{"x.json": DOCUMENT}], read=read, write=write, mutate=mutate)


def lenient(path: Path) -> Any:
    """Takes whatever Python's JSON takes, a key that is there twice as well."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} cannot be read") from error


def strict(path: Path) -> Any:
    """A reader without a fault: the one document and no other."""
    if lenient(path) != json.loads(DOCUMENT) or path.read_bytes() != DOCUMENT:
        raise InputError(f"{path} holds another document")
    return lenient(path)


def outcomes(reader: Reader, folder: Path, *, inputs: int = 400) -> list[tuple[str, str]]:
    samples = list(reader.samples())
    return [outcome(reader, mutant_of(reader, samples, 0, index), folder) for index in range(inputs)]


def test_a_reader_without_a_fault_is_passed(tmp_path: Path) -> None:
    assert {kind for kind, _ in outcomes(reader_with(strict), tmp_path)} <= {"refused", "accepted"}
    assert outcome(reader_with(strict), WHOLE, tmp_path) == ("accepted", "")


def test_an_exception_that_is_no_input_error_is_a_crash(tmp_path: Path) -> None:
    assert "crash" in {kind for kind, _ in outcomes(reader_with(lambda path: json.loads(path.read_bytes())), tmp_path)}


def test_a_key_that_is_there_twice_and_accepted_is_silent(tmp_path: Path) -> None:
    assert any(kind == "silent" and "the key twice" in reason for kind, reason in outcomes(reader_with(lenient), tmp_path))


def test_what_is_lost_on_the_way_is_silent(tmp_path: Path) -> None:
    def losing(path: Path) -> Any:
        document = lenient(path)
        return {**document, "values": document["values"][:-1]}

    assert outcome(reader_with(losing), WHOLE, tmp_path)[0] == "silent"
    knowing = dataclasses.replace(reader_with(strict), lost=lambda files, record: "a value")
    assert outcome(knowing, WHOLE, tmp_path) == ("silent", "lost a value: nothing")


def test_an_endless_loop_is_a_hang(tmp_path: Path) -> None:
    def endless(path: Path) -> Any:
        while True:
            pass

    assert outcome(reader_with(endless), WHOLE, tmp_path, seconds=0.1)[0] == "hang"


def test_paths_that_cannot_be_read_are_made_as_named(tmp_path: Path) -> None:
    for kind in HOSTILE_PATHS:
        folder = tmp_path / kind
        folder.mkdir()
        path = hostile_path(kind, folder, ".json")
        if kind not in ("pipe", "endless", "empty"):
            with pytest.raises((OSError, ValueError)):
                path.read_bytes()
    assert (tmp_path / "pipe" / "x.json").is_fifo()
    assert outcome_of_path(reader_with(lambda path: {}), "long", tmp_path)[0] == "silent"
    assert outcome_of_path(reader_with(lambda path: path.read_bytes()), "long", tmp_path)[0] == "crash"
    assert outcome_of_path(reader_with(strict), "long", tmp_path)[0] == "refused"


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_an_input_is_the_same_every_time(reader: Reader) -> None:
    samples = list(reader.samples())
    for index in range(5):
        one, again = (mutant_of(reader, samples, 3, index) for _ in range(2))
        assert (one.how, dict(one.files)) == (again.how, dict(again.files))


PLANTED = """
import os, sys, time
from pathlib import Path
first, end, folder = int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
for index in range(first, end):
    (folder / "now").write_text(str(index))
    if index == 2:
        {fault}
    print('{{"done": %d, "refused": %d, "accepted": 0, "peak_bytes": 7}}' % (index + 1 - first, index + 1 - first), flush=True)
"""


@pytest.mark.parametrize("fault,kind", [("os.abort()", "crash"), ("os.kill(os.getpid(), 9)", "crash"), ("time.sleep(1000)", "hang")])
def test_a_worker_that_dies_or_falls_silent_ends_no_campaign(
    fault: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tests" / "fuzz"
    package.mkdir(parents=True)
    (package / "worker.py").write_text(PLANTED.format(fault=fault))
    monkeypatch.setattr(campaigns, "_ROOT", tmp_path)
    monkeypatch.setattr(campaigns, "_SILENCE_S", 5.0)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    spoken: list[int] = []

    def said(figures: Figures) -> None:
        spoken.append(figures.inputs)

    figures = campaign("planted", seed=0, inputs=5, said=said)
    assert [(found.kind, found.index) for found in figures.findings] == [(kind, 2)]
    assert figures.inputs == 5 + len(HOSTILE_PATHS)
    assert figures.refused == 4 + len(HOSTILE_PATHS)
    assert figures.peak_bytes == 7
    assert spoken == sorted(spoken)
    assert figures.document()[kind] == 1
