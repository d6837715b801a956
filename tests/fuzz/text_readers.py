"""The readers of other people's instances and profiles: Tarnawski's JSON and its splits, PipeDream's and DOPPLER's texts."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from gdp.capture.doppler_txt import read_doppler
from gdp.capture.pipedream_txt import read_pipedream
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.capture.tarnawski_json import read_tarnawski, read_tarnawski_split
from gdp.graph import Graph, Phase
from tests.fuzz.documents import document_mutant
from tests.fuzz.lines import mutated_lines
from tests.fuzz.mutant import Files, Mutant
from tests.fuzz.reader import Reader
from tests.fuzz.record import form, form_by_name

_UNIT_S, _BYTES_PER_S = 2.0**-10, 2.0**20
"""Powers of two, so that scaling costs there and back loses nothing."""


def _instance(num_nodes: int, *, named: bool) -> dict[str, Any]:
    nodes = [
        {
            "id": 10 * number,
            "supportedOnFpga": 1,
            "cpuLatency": 2.5 * number,
            "fpgaLatency": 0.25,
            "isBackwardNode": number % 2 == 1,
            "size": 1000.0 * number,
            **({"name": f"n{number}", "layerId": number, "colorClass": number // 2} if named else {}),
        }
        for number in range(num_nodes)
    ]
    edges = [{"sourceId": 10 * number, "destId": 10 * (number + 1), "cost": 1.5} for number in range(num_nodes - 1)]
    return {"maxSizePerFPGA": 1e9, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}


INSTANCES = [_instance(4, named=True), _instance(7, named=False)]
SPLITS = [
    {"cpus": [{"nodes": [0, 10]}], "fpgas": [{"load": 1.5, "nodes": [20]}, {"nodes": [30]}], "maxLoad": 2.0},
    {"cpus": [], "fpgas": [{"nodes": [30, 20, 10, 0]}]},
]
PROFILES = [
    b"node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=0.0, parameter_size=0.000\n"
    b"node2 -- Conv2d(3, 64) -- forward_compute_time=8.5, backward_compute_time=13.5, activation_size=822083584.0, parameter_size=7168.0\n"
    b"node3 -- ReLU() -- forward_compute_time=0.1, backward_compute_time=0.2, activation_size=[8.0; 4.0], parameter_size=0.0, stage_id=1\n"
    b"node4 -- Linear -- forward_compute_time=1e-3, backward_compute_time=2E2, activation_size=16, parameter_size=4\n"
    b"\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode2 -- node4\n",
    b"a -- Input -- forward_compute_time=5, backward_compute_time=0, activation_size=10, parameter_size=0\n"
    b"b -- Add -- forward_compute_time=5, backward_compute_time=1, activation_size=10, parameter_size=0\n    a -- b\n",
]
DOPPLER_TEXTS = [
    b"6\n0, 1, \n0, 1, 2, \n2, 2, 3, \n0,2\n0,4\n1.5,1,mm\n3,0,add\n",
    b"4\n0, 1, 2, \n\n\n7,8\n",
    b"9\n0, 1, 2, 3, \n0,0,1,2,3\n1,2,3,3,4\n100,400,einsummable\n100,400,einsummable\n100,400,formation\n10,40,formation\n0,0,select\n",
]


def _inverse(value: float, convert: Callable[[float], float], guess: float) -> float:
    """A number that `convert` makes `value` of; the text that was read held one."""
    down = up = guess
    for _ in range(50):
        if convert(down) == value:
            return down
        if convert(up) == value:
            return up
        down, up = math.nextafter(down, -math.inf), math.nextafter(up, math.inf)
    raise AssertionError(f"{value!r} is the scaled value of no number")


def _milliseconds(seconds: float) -> float:
    return _inverse(float(seconds), lambda value: value * 1e-3, float(seconds) * 1e3)


def _write_instance(path: Path, instance: TarnawskiInstance) -> None:
    nodes = [
        {
            "id": int(instance.node_id[node]),
            "supportedOnFpga": bool(instance.runs_on_accelerator[node]),
            "cpuLatency": _milliseconds(instance.cpu_time_s[node]),
            "fpgaLatency": _milliseconds(instance.accelerator_time_s[node]),
            "isBackwardNode": bool(instance.backward[node]),
            "size": float(instance.size_bytes[node]),
            "colorClass": None if instance.colour[node] < 0 else int(instance.colour[node]),
        }
        for node in range(instance.num_nodes)
    ]
    edges = [
        {"sourceId": nodes[one]["id"], "destId": nodes[other]["id"], "cost": _milliseconds(instance.transfer_s[one])}
        for one, other in zip(instance.edge_from.tolist(), instance.edge_to.tolist(), strict=True)
    ]
    document = {
        "maxSizePerFPGA": instance.accelerator_memory_bytes,
        "maxFPGAs": instance.num_accelerators,
        "maxCPUs": instance.num_cpus,
        "nodes": nodes,
        "edges": edges,
    }
    path.write_text(json.dumps(document))


def _instance_form(instance: TarnawskiInstance) -> Any:
    edges = sorted(zip(instance.edge_from.tolist(), instance.edge_to.tolist(), strict=True))
    return form(instance, without=frozenset({"source", "edge_from", "edge_to"})), edges


def _lost_of_instance(files: Files, instance: TarnawskiInstance) -> str:
    document = json.loads(files["instance.json"])
    nodes = {node["id"]: node for node in document["nodes"]}
    edges = {(edge["sourceId"], edge["destId"]) for edge in document["edges"]}
    ids = instance.node_id.tolist()
    known = set(zip((ids[node] for node in instance.edge_from), (ids[node] for node in instance.edge_to), strict=True))
    if sorted(nodes) != sorted(ids) or edges != known:
        return "nodes or edges"
    for index, node in enumerate(ids):
        times = (instance.cpu_time_s[index], instance.accelerator_time_s[index], instance.size_bytes[index])
        if times != (nodes[node]["cpuLatency"] * 1e-3, nodes[node]["fpgaLatency"] * 1e-3, nodes[node]["size"]):
            return f"the costs of node {node}"
    return ""


def _graph_without_names(graph: Graph) -> Any:
    return form(graph, without=frozenset({"source", "name"}))


def _write_doppler(path: Path, graph: Graph) -> None:
    count = graph.num_ops
    sends = np.zeros(count)
    sends[graph.tensor_producer] = graph.tensor_bytes / (_UNIT_S * _BYTES_PER_S)
    ops = [
        f"{float(seconds) / _UNIT_S!r},{float(comm)!r},{kind}\n"
        for seconds, comm, kind in zip(graph.measured_time_s["gpu"], sends, graph.op_type, strict=True)
    ]
    lists = [", ".join(map(str, values.tolist())) for values in (graph.edge_producer, graph.edge_consumer)]
    path.write_text(f"{count}\n\n{lists[0]}\n{lists[1]}\n{''.join(ops)}")


def _lost_of_doppler(files: Files, graph: Graph) -> str:
    """What the format's own program reads (Doppler, utils.py): every run of digits is a number."""
    lines = files["graph.txt"].decode().splitlines()
    total, inputs, sources, destinations = ([int(number) for number in re.findall(r"\d+", line)] for line in lines[:4])
    number = {name: int(name.removeprefix("op")) for name in graph.name}
    found = sorted(
        (number[graph.name[one]], number[graph.name[other]])
        for one, other in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True)
    )
    if found != sorted(zip(sources, destinations, strict=True)):
        return "edges"
    costs = len([line for line in lines if line.strip()]) - 4
    return "" if graph.num_ops in (total[0], total[0] - len(inputs)) and costs <= graph.num_ops else "ops"


def _write_pipedream(path: Path, graph: Graph) -> None:
    backward = {name.removesuffix(".backward"): op for op, name in enumerate(graph.name) if graph.phase[op] == Phase.BACKWARD}
    seconds = graph.measured_time_s["gpu"]
    sends = dict(zip(graph.tensor_producer.tolist(), graph.tensor_bytes.tolist(), strict=True))
    lines = []
    for op, name in enumerate(graph.name):
        if graph.phase[op] == Phase.FORWARD:
            trained = backward.get(name)
            layer = graph.op_type[op] if trained is None else f"{graph.op_type[op]} ("
            times = (_milliseconds(seconds[op]), 0.0 if trained is None else _milliseconds(seconds[trained]))
            lines.append(
                f"{name} -- {layer} -- forward_compute_time={times[0]!r}, backward_compute_time={times[1]!r}, "
                f"activation_size={sends.get(op, 0)}, parameter_size={int(graph.param_bytes[op])}\n"
            )
    for one, other in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True):
        if graph.phase[one] == graph.phase[other] == Phase.FORWARD:
            lines.append(f"\t{graph.name[one]} -- {graph.name[other]}\n")
    path.write_text("".join(lines))


def _lost_of_pipedream(files: Files, graph: Graph) -> str:
    lines = [line for line in files["graph.txt"].decode().splitlines() if line.strip()]
    edges = Counter(tuple(part.strip() for part in line.split(" -- ")) for line in lines if line[0].isspace())
    forward = graph.phase == Phase.FORWARD
    found = Counter(
        (graph.name[one], graph.name[other])
        for one, other in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True)
        if forward[one] and forward[other]
    )
    if edges != found:
        return "edges"
    return "" if int(forward.sum()) == sum(not line[0].isspace() for line in lines) else "nodes"


def _json_samples(name: str, documents: Sequence[Any]) -> Callable[[], Sequence[Files]]:
    return lambda: [{name: json.dumps(document).encode()} for document in documents]


def _json_mutant(name: str, is_free: Callable[[tuple[str | int, ...]], bool]) -> Callable[[Sequence[Files], Random], Mutant]:
    def mutate(samples: Sequence[Files], rng: Random) -> Mutant:
        text = rng.choice(samples)[name]
        others = [sample[name] for sample in samples]
        return document_mutant(name, text, json.loads(text), rng, format="json", is_free=is_free, others=others)

    return mutate


def _text_mutant(samples: Sequence[Files], rng: Random) -> Mutant:
    text, how = mutated_lines(rng.choice(samples)["graph.txt"], rng)
    return Mutant(files={"graph.txt": text}, how=how)


def _instance_of_splits() -> TarnawskiInstance:
    nodes = np.array([0, 10, 20, 30])
    return TarnawskiInstance(
        source="fuzz",
        num_accelerators=2,
        num_cpus=1,
        accelerator_memory_bytes=1e9,
        node_id=nodes,
        cpu_time_s=np.ones(4),
        accelerator_time_s=np.ones(4),
        runs_on_accelerator=np.ones(4, np.bool_),
        backward=np.zeros(4, np.bool_),
        colour=np.full(4, TarnawskiInstance.NO_COLOUR, np.int32),
        size_bytes=np.ones(4),
        transfer_s=np.ones(4),
        edge_from=np.zeros(0, np.int32),
        edge_to=np.zeros(0, np.int32),
    )


_SPLIT_INSTANCE = _instance_of_splits()


def _write_split(path: Path, device: Any) -> None:
    parts = [
        [node for node, of in zip(_SPLIT_INSTANCE.node_id.tolist(), device.tolist(), strict=True) if of == number] for number in range(3)
    ]
    path.write_text(json.dumps({"fpgas": [{"nodes": nodes} for nodes in parts[:2]], "cpus": [{"nodes": parts[2]}]}))


def _split_form(device: Any) -> Any:
    """Accelerators are equal, so that only who shares one counts."""
    first = {number: index for index, number in reversed(list(enumerate(device.tolist())))}
    return tuple(2 if number == 2 else -1 - first[number] for number in device.tolist())


TEXT_READERS = (
    Reader(
        name="tarnawski",
        target="instance.json",
        samples=_json_samples("instance.json", INSTANCES),
        read=read_tarnawski,
        write=_write_instance,
        mutate=_json_mutant("instance.json", lambda path: path[-1:] == ("name",)),
        form=_instance_form,
        lost=_lost_of_instance,
    ),
    Reader(
        name="tarnawski-split",
        target="split.json",
        samples=_json_samples("split.json", SPLITS),
        read=lambda path: read_tarnawski_split(path, _SPLIT_INSTANCE),
        write=_write_split,
        mutate=_json_mutant("split.json", lambda path: False),
        form=_split_form,
    ),
    Reader(
        name="pipedream",
        target="graph.txt",
        samples=lambda: [{"graph.txt": text} for text in PROFILES],
        read=lambda path: read_pipedream(path, kind="gpu"),
        write=_write_pipedream,
        mutate=_text_mutant,
        form=form_by_name,
        lost=_lost_of_pipedream,
    ),
    Reader(
        name="doppler",
        target="graph.txt",
        samples=lambda: [{"graph.txt": text} for text in DOPPLER_TEXTS],
        read=lambda path: read_doppler(path, kind="gpu", seconds_per_unit=_UNIT_S, bandwidth_bytes_per_s=_BYTES_PER_S),
        write=_write_doppler,
        mutate=_text_mutant,
        form=_graph_without_names,
        lost=_lost_of_doppler,
    ),
)
