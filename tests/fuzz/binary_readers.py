"""The readers of graph files and checkpoint folders."""

import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from gdp.capture.parquet import read_graphs, write_graphs
from gdp.hub.checkpoint import CONFIG, WEIGHTS, load_checkpoint, save_checkpoint
from gdp.policy.policy import Policy
from gdp.workloads.known_optimum import fork_join
from gdp.workloads.synthetic import layered
from tests.capture.test_parquet import small
from tests.fuzz.documents import mutated_document
from tests.fuzz.mutant import Files, Mutant
from tests.fuzz.octets import mutated_bytes
from tests.fuzz.reader import Reader
from tests.fuzz.record import form
from tests.fuzz.tables import graph_file_mutant
from tests.hub.example_checkpoint import CARD, small_policy


def _as_files(write: Callable[[Path], None], name: str) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return {name: (Path(folder) / name).read_bytes()}


def _graph_files() -> Sequence[Files]:
    drawn = layered(np.random.default_rng(0), num_ops=12, training=False)
    batches = ([small()], [small(), drawn], [fork_join(num_branches=3, transfer_s=0.5).graph])
    return [_as_files(lambda path, graphs=graphs: write_graphs(path, graphs), "graph.parquet") for graphs in batches]


def _checkpoints() -> Sequence[Files]:
    samples = []
    for seed in (0, 1):
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "checkpoint"
            save_checkpoint(folder, small_policy(seed), card=CARD)
            samples.append({name: (folder / name).read_bytes() for name in (CONFIG, WEIGHTS)})
    return samples


def _checkpoint_mutant(samples: Sequence[Files], rng: Random) -> Mutant:
    """Changes the configuration, or the weights; these mostly with the configuration's hash and length made right again."""
    files = dict(rng.choice(samples))
    document = json.loads(files[CONFIG])
    if rng.randrange(2):
        files[CONFIG], how, wrong = mutated_document(
            files[CONFIG], document, rng, format="json", is_free=lambda path: path[:2] == ("features", "op_vocabulary") and len(path) > 2
        )
        return Mutant(files=files, how=f"{CONFIG}: {how}", wrong=wrong and not how.startswith("another key at features"))
    files[WEIGHTS], how, wrong = _changed_weights(files[WEIGHTS], rng)
    if rng.randrange(8):
        document |= {"weights_bytes": max(1, len(files[WEIGHTS])), "weights_sha256": hashlib.sha256(files[WEIGHTS]).hexdigest()}
        files[CONFIG] = json.dumps(document).encode()
    if rng.randrange(50) == 0:
        del files[rng.choice((CONFIG, WEIGHTS))]
    return Mutant(files=files, how=f"{WEIGHTS}: {how}", wrong=wrong)


def _changed_weights(data: bytes, rng: Random) -> tuple[bytes, str, bool]:
    length = struct.unpack("<Q", data[:8])[0]
    header, tensors = data[8 : 8 + length], data[8 + length :]
    match rng.randrange(6):
        case 0:
            return (*mutated_bytes(data, rng), False)
        case 1:
            changed, how, wrong = mutated_document(
                header, json.loads(header), rng, format="json", is_free=lambda path: path[0] == "__metadata__"
            )
            return struct.pack("<Q", len(changed)) + changed + tensors, f"header: {how}", wrong
        case 2:
            place = 4 * rng.randrange(len(tensors) // 4)
            value = rng.choice((float("nan"), float("inf"), -float("inf"), 0.0, 1e38))
            changed = tensors[:place] + struct.pack("<f", value) + tensors[place + 4 :]
            return data[: 8 + length] + changed, f"a weight is {value}", not np.isfinite(value)
        case 3:
            declared = rng.choice((0, 1, length - 1, length + 1, len(data), 2**31, 2**63, 2**64 - 1, 100_000_001))
            return struct.pack("<Q", declared) + data[8:], f"header of {declared} bytes", True
        case 4:
            names = json.loads(header)
            one, other = rng.sample([name for name in names if name != "__metadata__"], 2)
            names[one], names[other] = names[other], names[one]
            changed = json.dumps(names).encode()
            return struct.pack("<Q", len(changed)) + changed + tensors, f"{one} and {other} swapped", False
        case _:
            more = rng.choice((1, 4, 4096))
            return data + b"\0" * more, f"{more} bytes more", True


def _write_checkpoint(path: Path, policy: Policy) -> None:
    save_checkpoint(path, policy, card=CARD, replace=True)


def _policy_form(policy: Policy) -> Any:
    return form(policy.config), form(policy.features), form(policy)


BINARY_READERS = (
    Reader(
        name="graph",
        target="graph.parquet",
        samples=_graph_files,
        read=read_graphs,
        write=write_graphs,
        mutate=graph_file_mutant,
    ),
    Reader(
        name="checkpoint",
        target="",
        samples=_checkpoints,
        read=load_checkpoint,
        write=_write_checkpoint,
        mutate=_checkpoint_mutant,
        form=_policy_form,
    ),
)
