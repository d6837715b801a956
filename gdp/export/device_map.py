"""A placement as the `device_map` of accelerate and transformers: a device per module.

Parameters and buffers lie where the op that consumes them runs; a module goes where the tensors lie that it owns. Such a map says less than a placement: accelerate runs a
module on the device of its tensors, and what a module computes without tensors of its own where its inputs are. A placement whose tensors cannot be laid out
so is refused, with the op or module that stands in the way. Devices of accelerate are GPU numbers; `"cpu"` in a map means "stored there, computed on a GPU",
so a placement that computes on both is refused, too.
"""

from collections.abc import Mapping

from torch.export import ExportedProgram
from torch.fx import Node

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.export.accelerate_run import check_runs, prefixes
from gdp.export.fits import check_fits
from gdp.graph import Graph
from gdp.placement import Placement


def device_map(program: ExportedProgram, graph: Graph, cluster: Cluster, placement: Placement) -> dict[str, int | str]:
    """The map for `from_pretrained(device_map=...)` or `accelerate.dispatch_model`, as short as it can be: `{"": 0}` when one device holds all.

    Args:
        program: that was captured (`gdp.capture.torch.capture(...).program`).
        graph: captured with it.
        cluster: that the placement is for. `cuda:i` is `i`; GPUs that are only simulated are numbered in the order of the cluster.
        placement: of the graph.

    Raises:
        InputError: when the placement is not one of this graph and cluster, or accelerate could not run it: GPUs and CPUs compute, one tensor or the tensors of one module
            are on two devices, or an op outside of them would take inputs from two.
    """
    check_fits(graph, cluster, placement)
    on = dict(zip(graph.name, placement.device.tolist(), strict=True))
    label = _labels(cluster, sorted(set(on.values())))
    tensors = _tensor_devices(program, on, cluster)
    modules: dict[str, int] = {}
    for tensor, device in tensors.items():
        module = tensor.rpartition(".")[0]
        if modules.setdefault(module, device) != device:
            first = next(one for one in tensors if one.rpartition(".")[0] == module)
            raise InputError(
                f"module {module!r} has {first.rpartition('.')[2]!r} on {cluster.devices[modules[module]].name!r} and {tensor.rpartition('.')[2]!r} on "
                f"{cluster.devices[device].name!r}; a device_map puts a module on one device: place them together"
            )
    if not modules:
        raise InputError(
            f"the program of {graph.source!r} has no parameters or buffers, so a device_map has nothing to say; export the placement itself"
        )
    short = _shortest(modules)
    check_runs(program, short, tensors, cluster)
    return {module: label[device] for module, device in short.items()}


def _labels(cluster: Cluster, used: list[int]) -> dict[int, int | str]:
    """How accelerate calls each of the used devices."""
    names = [device.name for device in cluster.devices]
    cores = [number for number in used if names[number].startswith("cpu:")]
    if cores and len(used) > 1:
        others = ", ".join(names[number] for number in used if number != cores[0])
        raise InputError(
            f"the placement computes on {names[cores[0]]!r} and on {others}, which no device_map can say: accelerate only stores weights on the CPU and computes on a GPU; "
            "place the graph on GPUs alone, or run the placement itself"
        )
    if cores:
        return {cores[0]: "cpu"}
    gpus = [number for number, name in enumerate(names) if not name.startswith("cpu:")]
    real = all(names[number].startswith("cuda:") and names[number].removeprefix("cuda:").isdecimal() for number in gpus)
    return {number: int(names[number].removeprefix("cuda:")) if real else gpus.index(number) for number in used}


def _tensor_devices(program: ExportedProgram, on: Mapping[str, int], cluster: Cluster) -> dict[str, int]:
    """The device of every parameter and buffer by its qualified name, those without a consumer included."""
    signature = program.graph_signature
    target = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    consumers = {name: _devices(placeholders[one], on) for one, name in target.items() if one in placeholders}
    found: dict[str, int] = {}
    free: dict[str, int] = {}
    buffers = set(signature.inputs_to_buffers.values())
    for name, devices in consumers.items():
        if len(set(devices)) == 1:
            found[name] = devices[0]
        elif devices and name in buffers:
            # Small constants are copied to whoever reads them; the module that owns this one keeps its own copy.
            free[name] = devices[0]
        elif devices:
            raise InputError(
                f"parameter {name!r} is used on {cluster.devices[devices[0]].name!r} and on {cluster.devices[next(d for d in devices if d != devices[0])].name!r}; "
                "accelerate keeps one copy: place its consumers together"
            )
    _follow_ties(program, found)
    everything = dict.fromkeys([*program.state_dict, *consumers])
    for name in everything:
        if name not in found:
            found[name] = _nearest(name, found, free.get(name, min(on.values())))
    return {name: found[name] for name in everything}


def _devices(placeholder: Node, on: Mapping[str, int]) -> list[int]:
    return [on[user.name] for user in placeholder.users if user.name in on]


def _follow_ties(program: ExportedProgram, found: dict[str, int]) -> None:
    """Names of one and the same tensor lie together: the tied output layer that no op consumes under its own name."""
    by_storage: dict[tuple[object, ...], int] = {}
    keys = {name: (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape) for name, tensor in program.state_dict.items()}
    for name, key in keys.items():
        if name in found:
            by_storage.setdefault(key, found[name])
    for name, key in keys.items():
        if name not in found and key in by_storage:
            found[name] = by_storage[key]


def _nearest(name: str, found: Mapping[str, int], otherwise: int) -> int:
    """The device of the tensors of the same module, else `otherwise`, which decides for a tensor that no op consumes."""
    module = name.rpartition(".")[0]
    return next((device for one, device in found.items() if one.rpartition(".")[0] == module), otherwise)


def _shortest(modules: Mapping[str, int]) -> dict[str, int]:
    """The fewest modules that say the same, in the order in which they were registered: a module stands for all it contains when that lies on one device."""
    devices: dict[str, set[int]] = {}
    for module, device in modules.items():
        for above in prefixes(module):
            devices.setdefault(above, set()).add(device)
    short: dict[str, int] = {}
    for module, device in modules.items():
        top = next(above for above in prefixes(module) if devices[above] == {device} or above == module)
        short[top] = device
    return short
