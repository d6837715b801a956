"""Why no placement fits into a cluster's memory: by how much, and where.

Parts that need more than `m` bytes at once must be on devices with more than `m`. So if for some `m`, -1 included, their parameters exceed what all those devices hold, nothing
can run; and as which devices can hold a part is a matter of its need alone, no other set of parts proves more.
"""

import numpy as np

from gdp.baselines.indivisible import Indivisible, indivisible
from gdp.cluster import Cluster
from gdp.graph import Graph


def memory_shortage(graph: Graph, cluster: Cluster) -> str | None:
    """The proof that nothing runs, as a sentence without its end; None when there is none, which does not mean that something runs."""
    units = indivisible(graph, cluster)
    needed, memory = units.needed_bytes, cluster.memory_bytes
    neediest, largest = int(needed.argmax()), int(memory.argmax())
    need, room = int(needed[neediest]), int(memory[largest])
    if need > room:
        return (
            f"{_part(graph, units, neediest)} of {graph.source!r} needs {_bytes(need)} on one device, of which "
            f"{_bytes(int(units.param_bytes[neediest]))} are parameters, but the largest device of cluster {cluster.name!r}, "
            f"{cluster.devices[largest].name!r}, holds {_bytes(room)}: {_bytes(need - room)} too much"
        )
    for least in [-1, *sorted(set(memory.tolist()))[:-1]]:
        parts, devices = needed > least, memory > least
        # Python's whole numbers: the sums may exceed 64 bits.
        total, room = sum(units.param_bytes[parts].tolist()), sum(memory[devices].tolist())
        if total > room:
            whose = f"the parameters of {graph.source!r}"
            where = f"the {len(memory)} devices of cluster {cluster.name!r} hold"
            if least >= 0:
                names = ", ".join(repr(cluster.devices[d].name) for d in np.flatnonzero(devices).tolist())
                whose = f"the parameters of the {int(parts.sum())} parts of {graph.source!r} that fit only on the larger devices"
                where = f"those of cluster {cluster.name!r} ({names}) hold"
            return f"{whose} need {_bytes(total)}, but {where} {_bytes(room)} together: {_bytes(total - room)} too much"
    return None


def _part(graph: Graph, units: Indivisible, unit: int) -> str:
    ops = np.flatnonzero(units.unit_of_op == unit)
    name = graph.name[int(ops[0])]
    if len(ops) == 1:
        return f"op {name!r}"
    group = int(graph.colocation_group[int(ops[0])])
    return f"colocation group {group} ({len(ops)} ops, the first {name!r})"


def _bytes(count: int) -> str:
    return f"{count} bytes" if count < 2**20 else f"{count} bytes ({count / 2**30:.2f} GiB)"
