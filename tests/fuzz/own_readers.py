"""The readers of gdp's own documents: clusters, experts' rules, placements, comparisons, profiles, journals."""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from gdp.baselines.expert import ExpertRules, read_expert_rules
from gdp.bundled import bundled
from gdp.cli.comparisons import read_comparisons, write_comparisons
from gdp.cluster import preset, read_cluster, write_cluster
from gdp.compare.results import read_results, write_results
from gdp.measurement import Measurement, Status, measurement_document
from gdp.placement import Placement, read_placement, write_placement
from gdp.runtime.handovers import HandOvers
from gdp.runtime.journal import Journal
from gdp.runtime.links import fit_link
from gdp.runtime.profile import Profile, read_profile, write_profile
from gdp.workloads.known_optimum import fork_join
from tests.fuzz.documents import document_mutant, mutated_document
from tests.fuzz.mutant import Files, Mutant
from tests.fuzz.octets import mutated_bytes
from tests.fuzz.reader import Reader

GRAPH = fork_join(num_branches=3, transfer_s=0.5).graph
CLUSTER = preset("p100x2")
SHA = ("0" * 64, "f" * 64)


def _nothing_free(path: tuple[str | int, ...]) -> bool:
    return False


def _mutant(file: str, format: str, is_free: Callable[[tuple[str | int, ...]], bool]) -> Callable[[Sequence[Files], Random], Mutant]:
    parse: Callable[[bytes], Any] = functools.lru_cache(json.loads if format == "json" else yaml.safe_load)

    def mutate(samples: Sequence[Files], rng: Random) -> Mutant:
        text = rng.choice(samples)[file]
        others = [sample[file] for sample in samples]
        return document_mutant(file, text, parse(text), rng, format=format, is_free=is_free, others=others)

    return mutate


def _clusters() -> Sequence[Files]:
    """The small ones: YAML is read by Python, a kilobyte a few milliseconds."""
    paths = [bundled("conf") / "cluster" / f"{name}.yaml" for name in ("p100x2", "unequal", "cpu-gpu", "two-machines")]
    return [{"cluster.yaml": path.read_bytes()} for path in paths]


def _rules() -> Sequence[Files]:
    return [{"rules.yaml": path.read_bytes()} for path in sorted((bundled("datasets") / "experts").glob("*.yaml"))]


def _write_rules(path: Path, rules: ExpertRules) -> None:
    path.write_text(yaml.safe_dump(rules.model_dump(by_alias=True), allow_unicode=True), encoding="utf-8")


def _write_placement(path: Path, placement: Placement) -> None:
    write_placement(path, placement, GRAPH, CLUSTER, gdp_version="0", predicted={}, measured={}, baselines={})


def _placements() -> Sequence[Files]:
    document = {
        "schema": 1,
        "gdp_version": "0.1.0",
        "graph": {"sha256": GRAPH.sha256, "source": GRAPH.source, "num_ops": GRAPH.num_ops},
        "devices": [
            {"id": number, "name": device.name, "kind": device.kind, "memory_bytes": device.memory_bytes}
            for number, device in enumerate(CLUSTER.devices)
        ],
        "assignment": {name: number % 2 for number, name in enumerate(GRAPH.name)},
        "origin": {"placer": "gdp", "policy": "gdp-tiny", "revision": "abc", "seed": 3, "evaluations": 64},
        "predicted": {"step_time_s": 0.5, "peak_memory_bytes": [1, 2]},
        "measured": {},
        "baselines": {"metis": {"status": "ok"}},
    }
    return [{"placement.json": json.dumps(document, indent=1).encode()}]


def _placement_is_free(path: tuple[str | int, ...]) -> bool:
    return path[0] in ("predicted", "measured", "baselines") and len(path) > 1


def _comparisons_of_placers() -> Sequence[Files]:
    settings = {"policy": "gdp-tiny", "samples": 8, "budget": 8, "objective": "step_time", "dispatch": None}
    of_what = {"workload": "a", "cluster": "p100x2", "graph_sha256": "0a" * 32, "cluster_sha256": "1b" * 32}
    cell = {**of_what, "num_ops": 10, "bound_s": 0.5, "bound": "work", "serial_s": 2.0, "longest_path_s": 0.25}
    of_cell = {"workload": "a", "cluster": "p100x2", "placer": "metis", "seed": 0, "wall_s": 0.25}
    ran = {"status": "ok", "detail": "", "seconds": 0.75, "evaluations": 8, "devices_used": 2, "transfers": 3, "transferred_bytes": 4096}
    curve = {"busy_share": 0.5, "improved_at": [1, 5], "best_s": [1.0, 0.75]}
    failed = {
        **of_cell,
        **ran,
        **curve,
        "seed": 1,
        "status": "out_of_memory",
        "detail": "gpu0 is full",
        "seconds": None,
        "improved_at": [],
        "best_s": [],
    }
    head = {"format": 3, "settings": settings, "environment": {"python": "3.11"}}
    other = {**cell, "cluster": "p100x4", "bound_s": None}
    documents = [
        {**head, "cells": [cell, other], "rows": [{**of_cell, **ran, **curve}, failed]},
        {**head, "cells": [], "rows": []},
    ]
    return [{"compare.json": json.dumps(document).encode()} for document in documents]


def _profiles() -> Sequence[Files]:
    profile = Profile(
        graph_sha256=GRAPH.sha256,
        dispatch="program_order",
        op_time_s={CLUSTER.kinds[0]: np.linspace(0.0, 1.0, GRAPH.num_ops)},
        links={"gpu0 -> gpu1": fit_link([1024, 4096, 16384], [1e-5, 2e-5, 3e-5])},
        fingerprint={"processor": "a processor", "torch": "2.13.0"},
        hand_overs=HandOvers(latency_s=3e-5, num_transfers=(0, 4, 9), measured_s=(1.0, 2.0, 3.0)),
    )
    with TemporaryDirectory() as folder:
        write_profile(Path(folder) / "profile.json", profile)
        return [{"profile.json": (Path(folder) / "profile.json").read_bytes()}]


def _profile_form(profile: Profile) -> str:
    links = {name: dataclasses.asdict(link) for name, link in profile.links.items()}
    seconds = {kind: each.tolist() for kind, each in profile.op_time_s.items()}
    over = None if profile.hand_overs is None else dataclasses.asdict(profile.hand_overs)
    return json.dumps([profile.graph_sha256, profile.dispatch, seconds, links, dict(profile.fingerprint), over], sort_keys=True)


def _comparisons() -> Sequence[Files]:
    one = {"ratio": 0.5, "low": 0.25, "high": 0.75, "num_pairs": 9, "candidate_s": 0.1, "incumbent_s": 0.2, "resolution": 0.02}
    return [{"comparisons.json": json.dumps({SHA[0]: one, SHA[1]: {**one, "high": None}}).encode()}]


def _measurement(status: Status) -> Measurement:
    times = (1.0, 0.5, 1.5, 0.75) if status == Status.OK else (np.inf,) * 4
    return Measurement(
        status=status,
        detail="" if status == Status.OK else "device gpu0 is full",
        step_time_s=times[0],
        step_time_low_s=times[1],
        step_time_high_s=times[2],
        num_runs=5,
        bottleneck_s=times[3],
        peak_memory_bytes=np.array([100, 200], np.int64),
        busy_s=np.array([0.5, 0.25]),
        num_transfers=3,
        transferred_bytes=4096,
    )


def _journal_line(number: int, status: Status) -> bytes:
    line = {"graph": SHA[0], "cluster": SHA[1], "device": [0, 1, number % 2], **measurement_document(_measurement(status))}
    return json.dumps(line).encode() + b"\n"


def _journals() -> Sequence[Files]:
    lines = [_journal_line(0, Status.OK), _journal_line(1, Status.OUT_OF_MEMORY)]
    return [{"journal.jsonl": b"".join(lines)}, {"journal.jsonl": lines[0]}, {"journal.jsonl": b""}]


def _journal_mutant(samples: Sequence[Files], rng: Random) -> Mutant:
    text = rng.choice(samples)["journal.jsonl"]
    lines = text.splitlines(keepends=True)
    if not lines or rng.randrange(4) == 0:
        changed, how = mutated_bytes(text, rng)
        return Mutant(files={"journal.jsonl": changed}, how=how)
    number = rng.randrange(len(lines))
    whole = lines[number].rstrip()
    line, how, wrong = mutated_document(whole, json.loads(whole), rng, format="json", is_free=_nothing_free)
    # A line without an end is one that a crash cut off, which is dropped; white space between lines is not.
    lines[number] = line + b"\n"
    return Mutant(files={"journal.jsonl": b"".join(lines)}, how=f"line {number + 1}: {how}", wrong=wrong and line.strip() != b"")


def _read_journal(path: Path) -> dict[str, Any]:
    with Journal(path) as journal:
        return dict(journal._entries)


def _write_journal(path: Path, entries: dict[str, Any]) -> None:
    lines = [
        {"graph": of[64:], "cluster": of[:64], "device": measured.device.tolist(), **measurement_document(measured.measurement)}
        for of, measured in entries.values()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


OWN_READERS = (
    Reader(
        name="cluster",
        target="cluster.yaml",
        samples=_clusters,
        read=read_cluster,
        write=write_cluster,
        mutate=_mutant("cluster.yaml", "yaml", _nothing_free),
    ),
    Reader(
        name="expert",
        target="rules.yaml",
        samples=_rules,
        read=read_expert_rules,
        write=_write_rules,
        mutate=_mutant("rules.yaml", "yaml", _nothing_free),
        form=lambda rules: json.dumps(rules.model_dump(), sort_keys=True),
    ),
    Reader(
        name="placement",
        target="placement.json",
        samples=_placements,
        read=lambda path: read_placement(path, GRAPH, CLUSTER),
        write=_write_placement,
        mutate=_mutant("placement.json", "json", _placement_is_free),
    ),
    Reader(
        name="compare",
        target="compare.json",
        samples=_comparisons_of_placers,
        read=read_results,
        write=write_results,
        mutate=_mutant("compare.json", "json", lambda path: path[0] == "environment" and len(path) > 1),
        form=lambda results: json.dumps(results.model_dump(), sort_keys=True),
    ),
    Reader(
        name="profile",
        target="profile.json",
        samples=_profiles,
        read=lambda path: read_profile(path, GRAPH),
        write=write_profile,
        mutate=_mutant("profile.json", "json", lambda path: path[0] in ("op_time_s", "links", "fingerprint") and len(path) == 2),
        form=_profile_form,
    ),
    Reader(
        name="comparisons",
        target="comparisons.json",
        samples=_comparisons,
        read=read_comparisons,
        write=write_comparisons,
        mutate=_mutant("comparisons.json", "json", lambda path: len(path) == 1),
        may_be_absent=True,
    ),
    Reader(
        name="journal",
        target="journal.jsonl",
        samples=_journals,
        read=_read_journal,
        write=_write_journal,
        mutate=_journal_mutant,
        may_be_absent=True,
    ),
)
