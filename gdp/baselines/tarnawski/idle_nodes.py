"""Groups whose place costs nothing, joined to a neighbour: fewer ideals, the same least max-load of contiguous splits.

Such an idle group takes no time on either kind of device, may run on both, holds no memory that could matter, and touches no backward node. Where it
is, only transfers count, so moving it loses nothing in three cases:

1. It reads from one group, and nobody pays for what it writes: it goes where the group it reads from is.
2. It reads nothing, and one group reads it: it goes there.
3. It reads nothing, and nobody pays for what it writes: it goes with the first part, and precedes nobody.

Memory cannot matter when one accelerator could hold the whole graph.
"""

import numpy as np
from jaxtyping import Bool

from gdp.capture.disjoint_sets import DisjointSets
from gdp.capture.tarnawski_instance import TarnawskiInstance


def join_idle(instance: TarnawskiInstance, sets: DisjointSets) -> Bool[np.ndarray, " nodes"]:
    """Joins in `sets` what cases 1 and 2 allow, until nothing is left to join, and says which nodes case 3 concerns."""
    first_nodes = np.zeros(instance.num_nodes, np.bool_)
    roomy = instance.size_bytes.sum() <= instance.accelerator_memory_bytes
    costs = (instance.accelerator_time_s > 0) | (instance.cpu_time_s > 0) | ~instance.runs_on_accelerator | instance.backward
    if not roomy:
        costs |= instance.size_bytes > 0
    beside_backward = instance.backward[instance.edge_from] | instance.backward[instance.edge_to]
    costs[instance.edge_from[beside_backward]] = True
    costs[instance.edge_to[beside_backward]] = True
    changed = True
    while changed:
        changed = False
        group = sets.labels()
        count = int(group.max()) + 1
        idle = np.bincount(group, costs, minlength=count) == 0
        member = np.zeros(count, np.int64)
        member[group[::-1]] = np.arange(instance.num_nodes)[::-1]
        crosses = (group[instance.edge_from] != group[instance.edge_to]) & ~first_nodes[instance.edge_from]
        source, sink = instance.edge_from[crosses], instance.edge_to[crosses]
        paid = np.zeros(count, np.bool_)
        paid[group[source[instance.transfer_s[source] > 0]]] = True
        producers: list[set[int]] = [set() for _ in range(count)]
        consumers: list[set[int]] = [set() for _ in range(count)]
        for one, other in zip(group[source].tolist(), group[sink].tolist(), strict=True):
            producers[other].add(one)
            consumers[one].add(other)
        for one in np.flatnonzero(idle & ~np.isin(np.arange(count), group[first_nodes])).tolist():
            if len(producers[one]) == 1 and not paid[one]:
                neighbour = next(iter(producers[one]))
            elif not producers[one] and len(consumers[one]) == 1:
                neighbour = next(iter(consumers[one]))
            else:
                if not producers[one] and consumers[one] and not paid[one]:
                    first_nodes |= group == one
                    changed = True
                continue
            sets.join(int(member[one]), int(member[neighbour]))
            changed = True
    return first_nodes
