"""Reads the measured model profiles of PipeDream (Narayanan et al., SOSP 2019), `graph.txt`, as training graphs.

A line a node, `node2 -- Conv2d(3, 64) -- forward_compute_time=8.6, backward_compute_time=13.5, activation_size=822083584.0, parameter_size=7168.0` (ms and
bytes; an activation size may be a list, `[8.0; 4.0]`; a stage, `stage_id=1`, may follow), and an indented line an edge, `node1 -- node2`.

Every node becomes a forward and a backward op. The backward op of `v` reads the activations that `v` read, its own where `v` ends the model (the loss
starts from it), and the gradient that the backward op of every consumer of `v` sends: one tensor, as large as the largest activation which that consumer
read. Both ops of a node share a device, as in PipeDream's stages. The time of `Input` nodes is that of loading data on the host: it counts as zero, as in
PipeDream's optimiser, and they have no backward op. Parameters reside with the forward op; the profile knows no optimiser state and no update.
"""

import math
import re
from pathlib import Path

import numpy as np

from gdp.bounded_file import read_bounded
from gdp.capture.profile_graph import profile_graph
from gdp.errors import InputError
from gdp.graph import MAX_BYTES, Graph, Phase

MAX_FILE_BYTES = 64 * 2**20
MAX_NODES = 100_000
MAX_EDGES = 1_000_000
MAX_TIME_MS = 1e12

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")


def read_pipedream(path: Path, *, kind: str) -> Graph:
    """The training graph of the profile in the file `path`, its times measured on devices of the given kind.

    Raises `InputError` when the file is missing, too large or wrong: a line of neither form, a field that is missing, unknown or there twice, a number that is
    negative or not finite, a node that is unknown or there twice, an edge that is there twice, a cycle.
    """
    data = read_bounded(path, what="the PipeDream profile", advice="name a graph.txt", max_bytes=MAX_FILE_BYTES)
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"the PipeDream profile {path} is not UTF-8 text: {error.reason} at byte {error.start}; name a graph.txt"
        ) from error
    number: dict[str, int] = {}
    layer: list[str] = []
    values: list[dict[str, float]] = []
    pairs: list[tuple[int, str, str]] = []
    for count, line in enumerate(lines, start=1):
        where = f"line {count} of the PipeDream profile {path}"
        parts = [part.strip() for part in line.split(" -- ")]
        if not line.strip():
            continue
        if line[0].isspace():
            if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
                raise InputError(f"{where} is {line!r}; an indented line must be an edge, 'node1 -- node2'")
            if len(pairs) == MAX_EDGES:
                raise InputError(f"{where} is one edge too many; at most {MAX_EDGES} are read")
            pairs.append((count, parts[0], parts[1]))
            continue
        if len(parts) < 3 or not _NAME.fullmatch(parts[0]):
            raise InputError(
                f"{where} is {line!r}; it must be a node, 'node1 -- Layer(args) -- forward_compute_time=..., ...', or an indented edge"
            )
        if parts[0] in number:
            raise InputError(f"{where} gives the node {parts[0]!r} again; give every node once")
        if len(number) == MAX_NODES:
            raise InputError(f"{where} is one node too many; at most {MAX_NODES} are read")
        number[parts[0]] = len(number)
        layer.append(" -- ".join(parts[1:-1]))
        values.append(_values(parts[-1], where))
    edges: set[tuple[int, int]] = set()
    for count, *ends in pairs:
        where = f"line {count} of the PipeDream profile {path}"
        for end in ends:
            if end not in number:
                raise InputError(f"{where} has an edge with the node {end!r}, which is not there; add it or drop the edge")
        edge = (number[ends[0]], number[ends[1]])
        if edge in edges:
            raise InputError(f"{where} gives the edge {ends[0]} -- {ends[1]} again; give it once")
        edges.add(edge)
    if not number:
        raise InputError(f"the PipeDream profile {path} has no nodes; name a graph.txt")
    try:
        return _training_graph(list(number), layer, values, sorted(edges), kind=kind, source=f"PipeDream profile {path}")
    except InputError as error:
        raise InputError(f"the PipeDream profile {path} is wrong: {error}") from error


def _values(text: str, where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for field in text.split(","):
        key, equals, value = (part.strip() for part in field.partition("="))
        if not equals or key in found or key not in (*_FIELDS, "stage_id"):
            raise InputError(
                f"{where} has {field.strip()!r}; it must have {', '.join(_FIELDS)} and perhaps stage_id, each once as name=number"
            )
        items = value[1:-1].split(";") if key == "activation_size" and value.startswith("[") and value.endswith("]") else [value]
        try:
            # `float` would take underscores, too.
            numbers = [float(item) if re.fullmatch(r"\s*[-+.0-9eE]{1,60}\s*", item) else math.nan for item in items]
        except ValueError:
            numbers = [math.nan]
        most = MAX_TIME_MS if key.endswith("time") else float(MAX_BYTES)
        if not all(0 <= number <= most for number in numbers) or sum(numbers) > most:
            raise InputError(f"{where} has {key}={value}; it must be a number from 0 to {most:g}")
        found[key] = sum(numbers)
    missing = [key for key in _FIELDS if key not in found]
    if missing:
        raise InputError(f"{where} has no {missing[0]}; add it")
    return found


def _training_graph(
    name: list[str], layer: list[str], values: list[dict[str, float]], edges: list[tuple[int, int]], *, kind: str, source: str
) -> Graph:
    count = len(name)
    is_input = [text == "Input" or text.startswith("Input(") for text in layer]
    # Backward ops are numbered after all forward ops; -1 where a node has none.
    backward = [-1] * count
    consumers: list[list[int]] = [[] for _ in range(count)]
    producers: list[list[int]] = [[] for _ in range(count)]
    for one, other in edges:
        consumers[one].append(other)
        producers[other].append(one)
    trained = [node for node in range(count) if not is_input[node]]
    for place, node in enumerate(trained):
        backward[node] = count + place
    rows = list(edges)
    for node in trained:
        rows += [(producer, backward[node]) for producer in producers[node] or [node]]
        rows += [(backward[consumer], backward[node]) for consumer in consumers[node] if backward[consumer] >= 0]
        if not consumers[node] and producers[node]:
            rows.append((node, backward[node]))
    field = {key: np.array([value[key] for value in values]) for key in _FIELDS}
    forward_s = np.where(is_input, 0.0, field["forward_compute_time"] * 1e-3)
    activation = np.rint(field["activation_size"]).astype(np.int64)
    # A backward op sends each producer a gradient: one tensor, as large as the largest of the activations that its op reads.
    gradient = np.array([max((int(activation[producer]) for producer in producers[node]), default=0) for node in trained], np.int64)
    group = np.arange(count, dtype=np.int32)
    return profile_graph(
        op_type=[_kind_of_layer(text) for text in layer] + [f"{_kind_of_layer(layer[node])}.backward" for node in trained],
        name=name + [f"{name[node]}.backward" for node in trained],
        time_s={kind: np.concatenate([forward_s, field["backward_compute_time"][trained] * 1e-3])},
        param_bytes=np.concatenate([np.rint(field["parameter_size"]).astype(np.int64), np.zeros(len(trained), np.int64)]),
        output_bytes=np.concatenate([activation, gradient]),
        phase=np.repeat(np.array([Phase.FORWARD, Phase.BACKWARD], np.int8), [count, len(trained)]),
        colocation_group=np.concatenate([group, group[trained]]),
        edges=np.array(sorted(set(rows)), np.int64).reshape(-1, 2),
        source=source,
    )


def _kind_of_layer(text: str) -> str:
    return text.split("(", 1)[0].strip()[:200].strip() or "Layer"
