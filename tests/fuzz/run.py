"""The fuzzer's command: `python -m tests.fuzz.run --inputs 100000 [--readers graph,cluster] [--seed 0] [--out FILE]`; ends with code 1 when anything was found."""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import pyarrow
import pydantic
import torch
import yaml

from tests.fuzz.campaign import Figures, campaign
from tests.fuzz.readers import READERS


def main(arguments: list[str]) -> int:
    names = [reader.name for reader in READERS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Feeds hostile files to every reader.")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each reader")
    parser.add_argument("--readers", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args(arguments)
    chosen = options.readers.split(",")
    unknown = [name for name in chosen if name not in names]
    if unknown:
        parser.error(f"there is no reader {unknown[0]!r}; the readers are {', '.join(names)}")
    documents = []
    for name in chosen:
        figures = campaign(name, seed=options.seed, inputs=options.inputs, said=_Progress(options.inputs))
        documents.append(figures.document())
        print(_line(figures), flush=True)
        for found in documents[-1]["findings"][:20]:
            print(f"  {found['kind']} of input {found['index']}: {found['reason'][:300]!r}", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps({"environment": _environment(), "readers": documents}, indent=1) + "\n")
    return 1 if any(document["findings"] for document in documents) else 0


class _Progress:
    """A line every ten seconds on standard error."""

    def __init__(self, inputs: int) -> None:
        self._inputs, self._last_s = inputs, time.monotonic()

    def __call__(self, figures: Figures) -> None:
        if time.monotonic() - self._last_s > 10:
            self._last_s = time.monotonic()
            print(f"{_line(figures)} of {self._inputs}", file=sys.stderr, flush=True)


def _line(figures: Figures) -> str:
    kinds = ", ".join(f"{sum(found.kind == kind for found in figures.findings)} {kind}" for kind in ("crash", "hang", "silent"))
    return (
        f"{figures.reader}: {figures.inputs} inputs, {figures.refused} refused, {figures.accepted} accepted, {kinds}, "
        f"{figures.peak_bytes / 2**20:.0f} MiB at most, {figures.seconds:.0f} s"
    )


def _environment() -> dict[str, str]:
    versions = {"pyarrow": pyarrow.__version__, "pydantic": pydantic.VERSION, "pyyaml": yaml.__version__, "torch": torch.__version__}
    return {"python": platform.python_version(), **versions}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
