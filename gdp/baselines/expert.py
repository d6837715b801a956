"""Human experts' placements: rules per family of workloads, stored as data in `datasets/experts/`, and the placer that follows them."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gdp.baselines.single_device import SingleDevice
from gdp.bounded_file import read_bounded
from gdp.bundled import bundled
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.placement import Origin, Placement
from gdp.plain_yaml import parse_yaml
from gdp.runtime.roofline import op_time_s

MAX_FILE_BYTES = 2**16
"""The most bytes of a file of rules that are read."""

_LAYER = "{layer}"
_NO_STAGE = -1
_COUNTED = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})
_TAPE = re.compile(r"^(?:gradient_tape/)+")


class ScopeRule(BaseModel):
    """Which stage the ops below a scope are in, and their gradients with them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    scope: Annotated[str, Field(min_length=1, max_length=200)]
    """whole components of a `module_path` from its start, which `/` or `.` ends; `{layer}` stands for a layer's number."""
    stage: Literal["first", "layer", "last"]
    """`layer`: layers 0 to L - 1 are spread over the stages in order, as evenly as can be."""

    @model_validator(mode="after")
    def _check_layer(self) -> "ScopeRule":
        if self.scope.count(_LAYER) != (self.stage == "layer"):
            raise ValueError(f"the scope of a rule with stage 'layer' names {_LAYER} once, and no other does")
        return self


class ExpertRules(BaseModel):
    """How a person would place the graphs of one family."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    format: Annotated[Literal[1], Field(alias="schema")]
    family: str
    source: str
    """who places them so, and where that is written."""
    method: Literal["layers", "depth", "single-device"]
    """`layers`: by the rules, one stage a device, of as many as there are layers; `depth`: contiguous parts with equally many convolutions and dense layers."""
    rules: Annotated[list[ScopeRule], Field(max_length=100)] = []
    """the first that fits an op counts."""

    @model_validator(mode="after")
    def _check_rules(self) -> "ExpertRules":
        if (self.method == "layers") != any(rule.stage == "layer" for rule in self.rules) or (self.method != "layers" and self.rules):
            raise ValueError("rules, one of them with the stage 'layer', belong to the method 'layers', and to no other")
        return self


def read_expert_rules(path: Path) -> ExpertRules:
    """Reads rules from YAML (format: docs/formats.md). Raises `InputError` when the file is missing or wrong."""
    data = read_bounded(path, what="the file of expert rules", advice="name a YAML file", max_bytes=MAX_FILE_BYTES)
    try:
        return ExpertRules.model_validate(parse_yaml(data.decode("utf-8")))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise InputError(f"the file of expert rules {path} is wrong at {place}: {first['msg']}; see docs/formats.md") from error
    except ValueError as error:
        raise InputError(f"the file of expert rules {path} is not YAML: {error}; see docs/formats.md") from error


def expert_families() -> tuple[str, ...]:
    """The families of workloads that have rules."""
    return tuple(sorted(path.stem for path in (bundled("datasets") / "experts").glob("*.yaml")))


def expert_rules(family: str) -> ExpertRules:
    """The bundled rules of a family. Raises `InputError` that lists the families when it has none."""
    if family not in expert_families():
        raise InputError(f"no expert's placement is known for the family {family!r}; there are rules for {', '.join(expert_families())}")
    return read_expert_rules(bundled("datasets") / "experts" / f"{family}.yaml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expert:
    """Places a graph as the rules of its family say, on the fastest devices, which keep the cluster's order among themselves.

    A variable with its slots and updates is where its first use is; an op that no rule names (a sum of gradients, a step of the optimiser, a constant) is where its
    heaviest input comes from, or having none where its result is used.

    Raises:
        InputError: when called with a graph that the rules do not fit.
    """

    rules: ExpertRules

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        if self.rules.method == "single-device":
            return Placement(device=SingleDevice()(graph, cluster).device, origin=Origin(placer="expert"))
        if self.rules.method == "depth":
            stage, num_stages = _by_depth(graph, cluster.num_devices)
        else:
            stage, num_stages = _by_rules(graph, self.rules, cluster.num_devices)
        seconds = op_time_s(graph, cluster).sum(axis=0)
        chosen = np.sort(np.argsort(seconds, kind="stable")[:num_stages]).astype(np.int32)
        return Placement(device=chosen[_with_the_rest(graph, stage)], origin=Origin(placer="expert"))


def _by_rules(graph: Graph, rules: ExpertRules, num_devices: int) -> tuple[Int64[np.ndarray, " ops"], int]:
    """The stage of every op that a rule names, and how many stages there are."""
    patterns = [
        (re.compile(re.escape(rule.scope).replace(re.escape(_LAYER), r"([0-9]{1,6})") + r"(?:[/.]|$)"), rule.stage) for rule in rules.rules
    ]
    found: dict[str, tuple[str, int] | None] = {}
    for path in dict.fromkeys(graph.module_path):
        matches = ((pattern.match(_TAPE.sub("", path)), stage) for pattern, stage in patterns)
        found[path] = next(((stage, int(match[1]) if stage == "layer" else 0) for match, stage in matches if match), None)
    num_layers = max((one[1] + 1 for one in found.values() if one and one[0] == "layer"), default=0)
    if not num_layers:
        raise InputError(
            f"the expert's rules for {rules.family!r} name no layer of the graph from {graph.source!r}; they fit that family alone"
        )
    num_stages = min(num_devices, num_layers)

    def stage_of(one: tuple[str, int] | None) -> int:
        if one is None:
            return _NO_STAGE
        stage, layer = one
        return {"first": 0, "layer": layer * num_stages // num_layers, "last": num_stages - 1}[stage]

    of_path = {path: stage_of(one) for path, one in found.items()}
    return np.array([of_path[path] for path in graph.module_path], np.int64), num_stages


def _by_depth(graph: Graph, num_devices: int) -> tuple[Int64[np.ndarray, " ops"], int]:
    """Layers are the scopes of two components, as Keras has them, in the order of their first ops; gradients go with them."""
    counted: dict[str, int] = {}
    layer_of_op: list[str] = []
    weighty: set[str] = set()
    for kind, path in zip(graph.op_type, graph.module_path, strict=True):
        parts = path.split("/")
        layer = "/".join(parts[:2]) if parts[0] != "gradient_tape" else "/".join(parts[1:3])
        layer_of_op.append(layer)
        if parts[0] != "gradient_tape" and kind in _COUNTED:
            weighty.add(layer)
    for layer in layer_of_op:
        if layer in weighty:
            counted.setdefault(layer, len(counted))
    if not counted:
        raise InputError(
            f"the graph from {graph.source!r} has no convolution or dense layer in a scope, by which an expert counts its depth"
        )
    num_stages = min(num_devices, len(counted))
    return np.array([counted[layer] * num_stages // len(counted) if layer in counted else _NO_STAGE for layer in layer_of_op]), num_stages


def _with_the_rest(graph: Graph, stage: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Every op's stage: colocation groups are of one, and the ops without any follow their neighbours."""
    group = graph.colocation_group.astype(np.int64)
    unit_of_op = np.where(group >= 0, group, group.max(initial=-1) + 1 + np.arange(graph.num_ops)).tolist()
    stage_of: dict[int, int] = {}
    for unit, one in zip(unit_of_op, stage.tolist(), strict=True):
        if one != _NO_STAGE:
            stage_of.setdefault(unit, one)
    into: list[list[tuple[int, int]]] = [[] for _ in range(graph.num_ops)]
    out: list[list[tuple[int, int]]] = [[] for _ in range(graph.num_ops)]
    sizes = graph.tensor_bytes[graph.edge_tensor].tolist()
    for producer, consumer, size in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), sizes, strict=True):
        into[consumer].append((size, unit_of_op[producer]))
        out[producer].append((size, unit_of_op[consumer]))
    forwards, backwards = range(graph.num_ops), range(graph.num_ops - 1, -1, -1)
    for order, neighbours in ((forwards, into), (backwards, out), (forwards, into)):
        for op in order:
            if unit_of_op[op] in stage_of:
                continue
            known = [(size, -position) for position, (size, unit) in enumerate(neighbours[op]) if unit in stage_of]
            if known:
                stage_of[unit_of_op[op]] = stage_of[neighbours[op][-max(known)[1]][1]]
    return np.array([stage_of.get(unit, 0) for unit in unit_of_op], np.int64)
