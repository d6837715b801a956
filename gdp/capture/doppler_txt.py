"""Reads the text format of DOPPLER (Yao et al., ICLR 2026): sharded graphs with a cost of computing and of sending per op.

Lines: the number of inputs and ops together; the ids of the inputs; the sources of all edges; their destinations (lists with commas, one at the end allowed); then
a line an op, `compute,comm` or `compute,comm,op`. In the published files, as for the program that reads them (`utils.py` beside them), the inputs are counted and
named but belong to the graph no further: they have no cost, edges join ops alone, and an op's id in an edge is the number of its line, from 0. A file that has a line
for every input, too, is read by its plain meaning: inputs are ops, to which no edge leads. What the costs are in is up to the file: the caller says so. An op's
output is one tensor, whose bytes are such that a link of the stated bandwidth takes `comm` for it.
"""

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np

from gdp.bounded_file import read_bounded
from gdp.capture.profile_graph import profile_graph
from gdp.errors import InputError
from gdp.graph import MAX_BYTES, Graph, Phase

MAX_FILE_BYTES = 64 * 2**20
MAX_OPS = 100_000
MAX_EDGES = 1_000_000
MAX_COST = 1e15


def read_doppler(path: Path, *, kind: str, seconds_per_unit: float, bandwidth_bytes_per_s: float) -> Graph:
    """The graph in the file `path`.

    Args:
        path: of the file.
        kind: of the devices that the computing costs hold for.
        seconds_per_unit: what one unit of cost is.
        bandwidth_bytes_per_s: of the link that the sending costs hold for.

    Raises:
        InputError: when the file is missing, too large or wrong: another number of lines or values than stated, an id that is unknown, an edge or an input that
            is there twice, a cost that is negative or not finite, a cycle.
    """
    for what, value in (("seconds_per_unit", seconds_per_unit), ("bandwidth_bytes_per_s", bandwidth_bytes_per_s)):
        if not 0 < value < math.inf:
            raise InputError(f"the reader of DOPPLER's format is given {what} {value}; it must be positive and finite")
    data = read_bounded(path, what="the DOPPLER file", advice="name a text file as DOPPLER writes it", max_bytes=MAX_FILE_BYTES)
    try:
        lines = [line.strip() for line in data.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise InputError(f"the DOPPLER file {path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) < 5:
        raise InputError(
            f"the DOPPLER file {path} has {len(lines)} lines; it needs the number of ops, inputs, sources, destinations and a line an op"
        )
    total = _ids(lines[0], limit=2 * MAX_OPS + 1, where=f"line 1 of the DOPPLER file {path}")
    if len(total) != 1 or total[0] == 0:
        raise InputError(
            f"line 1 of the DOPPLER file {path} is {lines[0][:100]!r}; it must be the number of inputs and ops, from 1 to {2 * MAX_OPS}"
        )
    inputs = _ids(lines[1], limit=total[0], where=f"line 2 of the DOPPLER file {path}")
    if len(set(inputs)) != len(inputs):
        raise InputError(f"line 2 of the DOPPLER file {path} names an input twice; name each once")
    inputs_are_ops = len(lines) == 4 + total[0]
    num_ops = total[0] - (0 if inputs_are_ops else len(inputs))
    if not 1 <= num_ops <= MAX_OPS:
        raise InputError(
            f"the DOPPLER file {path} states {total[0]} inputs and ops, {len(inputs)} of them inputs; it must have from 1 to {MAX_OPS} ops"
        )
    if len(lines) != 4 + num_ops:
        raise InputError(
            f"the DOPPLER file {path} states {total[0]} inputs and ops, {len(inputs)} of them inputs, but has {len(lines) - 4} lines of costs; "
            f"write one for every op ({num_ops}), or for every input and op ({total[0]})"
        )
    sources, destinations = (_ids(lines[number], limit=num_ops, where=f"line {number + 1} of the DOPPLER file {path}") for number in (2, 3))
    if len(sources) != len(destinations):
        raise InputError(f"the DOPPLER file {path} has {len(sources)} sources but {len(destinations)} destinations; an edge needs both")
    if len(sources) > MAX_EDGES:
        raise InputError(f"the DOPPLER file {path} has {len(sources)} edges; at most {MAX_EDGES} are read")
    edges = list(zip(sources, destinations, strict=True))
    edge, times = Counter(edges).most_common(1)[0] if edges else ((0, 0), 0)
    if times > 1:
        raise InputError(f"the DOPPLER file {path} has the edge {edge[0]} -> {edge[1]} twice; give it once")
    fed = sorted(set(inputs) & set(destinations)) if inputs_are_ops else []
    if fed:
        raise InputError(f"line 2 of the DOPPLER file {path} calls op {fed[0]} an input, but an edge leads to it; drop one of the two")
    compute, comm, op_type = [], [], []
    for op, line in enumerate(lines[4:]):
        where = f"line {op + 5} of the DOPPLER file {path}"
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) < 2:
            raise InputError(f"{where} is {line!r}; it must be 'compute,comm' or 'compute,comm,op'")
        compute.append(_cost(parts[0], where))
        comm.append(_cost(parts[1], where))
        op_type.append((parts[2] if len(parts) == 3 else "")[:200].strip() or ("input" if inputs_are_ops and op in inputs else "op"))
    output_bytes = np.array(comm) * seconds_per_unit * bandwidth_bytes_per_s
    if (output_bytes > MAX_BYTES).any():
        worst = int(output_bytes.argmax())
        raise InputError(
            f"op {worst} of the DOPPLER file {path} sends {output_bytes[worst]:g} bytes in the units given; at most 2**60 can be: check seconds_per_unit"
        )
    try:
        return profile_graph(
            op_type=op_type,
            name=[f"op{op}" for op in range(num_ops)],
            time_s={kind: np.array(compute) * seconds_per_unit},
            param_bytes=np.zeros(num_ops, np.int64),
            output_bytes=np.rint(output_bytes).astype(np.int64),
            phase=np.full(num_ops, Phase.FORWARD, np.int8),
            colocation_group=np.full(num_ops, Graph.NO_GROUP, np.int32),
            edges=np.array(edges, np.int64).reshape(-1, 2),
            source=f"DOPPLER file {path}",
        )
    except InputError as error:
        raise InputError(f"the DOPPLER file {path} is wrong: {error}") from error


def _ids(line: str, *, limit: int, where: str) -> list[int]:
    found = [part.strip() for part in line.removesuffix(",").split(",")] if line else []
    for part in found:
        if not re.fullmatch(r"[0-9]{1,9}", part) or int(part) >= limit:
            raise InputError(f"{where} has {part!r}; it must be whole numbers from 0 to {limit - 1} with commas between them")
    return [int(part) for part in found]


def _cost(text: str, where: str) -> float:
    try:
        value = float(text) if re.fullmatch(r"[-+.0-9eE]{1,60}", text) else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_COST:
        raise InputError(f"{where} has the cost {text!r}; it must be a number from 0 to {MAX_COST:g}")
    return value
