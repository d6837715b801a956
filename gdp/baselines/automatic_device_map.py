"""The automatic device map of accelerate (`device_map="auto"`), from the modules of a captured PyTorch program.

Modules are taken in the order in which the program uses them. A module goes to the current device if its parameters still fit under that device's limit; if not, and it
may be split, its children are taken in its place; else the next device becomes the current one. The limit of a `balanced` map is an equal share of all parameters, and on top
of it 1.25 times the larger of the largest module that is not split and the mean module without children; the last device's limit is its memory, as is every device's in
a `sequential` map. Devices are filled the fastest first (accelerate: GPUs by number, then the CPU). The first one
keeps room for the largest layer (a module that is not split, or has no children) still to come.

Deviations: what fits nowhere goes to the last device, since there is no offloading here; a module that is not split is the outermost with a number for a name (a block of a
list of layers); buffers do not count, and what a module computes without parameters follows its data, as accelerate's hooks have it.
"""

import dataclasses
import itertools
from collections import defaultdict

import numpy as np
from jaxtyping import Int32

from gdp.baselines.module_rules import UNSAID, follow_data, path_parts
from gdp.baselines.score import best_of
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.roofline import op_time_s

_Path = tuple[str, ...]

_OWN = ""
"""The name of the child that stands for the parameters of a module itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutomaticDeviceMap:
    """The balanced map with whole blocks. With a runtime, the best of balanced and sequential maps, with whole and with split blocks."""

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        name = "automatic-device-map"
        if self.runtime is None:
            return Placement(device=device_map(graph, cluster, balanced=True, split_blocks=False), origin=Origin(placer=name))
        rows = [
            device_map(graph, cluster, balanced=balanced, split_blocks=split_blocks)
            for balanced, split_blocks in itertools.product((True, False), (False, True))
        ]
        different = np.stack(list({row.tobytes(): row for row in rows}.values()))
        best = best_of(graph, cluster, different, runtime=self.runtime, objective=self.objective)
        return Placement(device=best, origin=Origin(placer=name, evaluations=len(different)))


def device_map(graph: Graph, cluster: Cluster, *, balanced: bool, split_blocks: bool) -> Int32[np.ndarray, " ops"]:
    """The device of every op by the rule at the top of this file."""
    paths = [path_parts(path) for path in graph.module_path]
    modules = _Modules(paths, graph.param_bytes.tolist(), split_blocks=split_blocks)
    seconds = op_time_s(graph, cluster).sum(axis=0)
    filled = np.argsort(seconds, kind="stable")
    limits = modules.limits(cluster.memory_bytes[filled].tolist(), balanced=balanced)
    device_of: dict[_Path, int] = {}
    current, used = 0, 0
    queue: list[_Path] = [*modules.children[()]] or [()]
    while queue:
        module = queue.pop(0)
        reserved = modules.largest_layer_bytes(besides=module) if current == 0 else 0
        if used + modules.size_bytes[module] > limits[current] - reserved:
            if modules.children[module] and module not in modules.blocks:
                queue = [*modules.children[module], *queue]
                continue
            if current + 1 < cluster.num_devices:
                current, used = current + 1, 0
                queue.insert(0, module)
                continue
        device_of[module] = int(filled[current])
        used += modules.size_bytes[module]
        modules.forget_layers(within=module)
    device = [_device(path, device_of) if modules.size_bytes[path] else UNSAID for path in paths]
    return follow_data(graph, np.array(device, np.int32))


def _device(path: _Path, device_of: dict[_Path, int]) -> int:
    """The device of the module or of one that contains it."""
    around = ((*path, _OWN), *(path[:count] for count in range(len(path), -1, -1)))
    return next((device_of[module] for module in around if module in device_of), UNSAID)


class _Modules:
    """The tree of modules with the bytes of their parameters; what a module with children holds itself is one more child, the first."""

    def __init__(self, paths: list[_Path], param_bytes: list[int], *, split_blocks: bool) -> None:
        own: dict[_Path, int] = defaultdict(int)
        for path, size in zip(paths, param_bytes, strict=True):
            own[path] += size
        containers = {path[:count] for path in own for count in range(len(path))}
        self.size_bytes: dict[_Path, int] = defaultdict(int)
        self.children: dict[_Path, dict[_Path, None]] = defaultdict(dict)
        for path, size in own.items():
            leaf = (*path, _OWN) if path in containers and size else path
            for count in range(len(leaf) + 1):
                self.size_bytes[leaf[:count]] += size
            for count in range(len(leaf)):
                self.children[leaf[:count]][leaf[: count + 1]] = None
        for module in containers:
            if (*module, _OWN) in self.children[module]:
                self.children[module] = {(*module, _OWN): None, **self.children[module]}
        self.blocks = set() if split_blocks else {module for module in self.size_bytes if _is_block(module)}
        leaves = {module: size for module, size in self.size_bytes.items() if not self.children[module]}
        self.mean_leaf_bytes = sum(leaves.values()) // len(leaves)
        inside = {module for module in leaves if any(module[:count] in self.blocks for count in range(len(module)))}
        self._layers = {module: size for module, size in leaves.items() if module not in inside}
        self._layers |= {module: self.size_bytes[module] for module in self.blocks}

    def largest_layer_bytes(self, *, besides: _Path) -> int:
        """Of the layers, blocks and modules without children, that are not placed and not in the given module."""
        return max((size for module, size in self._layers.items() if module[: len(besides)] != besides), default=0)

    def forget_layers(self, *, within: _Path) -> None:
        self._layers = {module: size for module, size in self._layers.items() if module[: len(within)] != within}

    def limits(self, capacity: list[int], *, balanced: bool) -> list[int]:
        """The most bytes of parameters of each device, in the order of filling; `capacity` is what they hold."""
        if not balanced:
            return capacity
        block = max((self.size_bytes[module] for module in self.blocks), default=0)
        share = self.size_bytes[()] // len(capacity) + int(1.25 * max(block, self.mean_leaf_bytes))
        return [*(min(one, share) for one in capacity[:-1]), capacity[-1]]


def _is_block(module: _Path) -> bool:
    return bool(module) and module[-1].isdecimal() and not any(part.isdecimal() for part in module[:-1])
