"""What would happen if accelerate ran a program under a device map: where each op finds its inputs.

`dispatch_model` sends the inputs of every module of the map to the module's device, and the inputs of the whole model to the first device of the map. An op between such modules
(the sum of a residual connection) finds its inputs wherever they are, and fails when they are on two devices.
"""

from collections.abc import Mapping
from operator import getitem

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from gdp.cluster import Cluster
from gdp.errors import InputError


def check_runs(program: ExportedProgram, modules: Mapping[str, int], tensors: Mapping[str, int], cluster: Cluster) -> None:
    """Raises `InputError` naming the first op that would take inputs from two devices.

    An op without inputs, which makes its own tensor, is taken to make it where it is needed, as code that hands `device=x.device` on does.

    Args:
        program: in topological order, as exported.
        modules: the device number of each module of the map.
        tensors: the device number of each parameter and buffer, by qualified name.
        cluster: for the names of the devices.
    """
    signature = program.graph_signature
    target = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    inputs = dict.fromkeys(signature.user_inputs, next(iter(modules.values())))
    where: dict[Node, int | None] = {}
    resident: set[Node] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            where[node] = tensors[target[node.name]] if node.name in target else inputs.get(node.name)
            if node.name in target:
                resident.add(node)
        elif node.op == "call_function" and node.target is getitem:
            where[node] = where[node.args[0]]
        elif node.op == "call_function":
            path = module_of(node)
            cover = next((above for above in reversed(prefixes(path)) if above in modules), None)
            found = {
                where[one] if one in resident else _arrives(one, cover, modules, where) for one in node.all_input_nodes if _has_extent(one)
            } - {None}
            if len(found) > 1:
                names = " and ".join(repr(cluster.devices[device].name) for device in sorted(one for one in found if one is not None))
                raise InputError(
                    f"op {node.name!r} of module {path!r} would take inputs from {names}: a device_map cannot split that module; put all of it on one device, or run the "
                    "placement itself"
                )
            where[node] = found.pop() if found else (None if cover is None else modules[cover])


def module_of(node: Node) -> str:
    """The innermost module that an op comes from."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]).split("@")[0] if stack else ""


def prefixes(module: str) -> list[str]:
    """The modules that contain `module`, the outermost (`""`) first, and itself."""
    parts = module.split(".") if module else []
    return [".".join(parts[:length]) for length in range(len(parts) + 1)]


def _arrives(one: Node, cover: str | None, modules: Mapping[str, int], where: Mapping[Node, int | None]) -> int | None:
    """Where an input is when an op inside the module `cover` takes it: what comes from outside of a module of the map is sent to its device."""
    inside = cover is None or cover in prefixes(module_of(one))
    return where[one] if inside else modules[str(cover)]


def _has_extent(node: Node) -> bool:
    """Whether an input must be on the device of the others; a number (a tensor of rank 0 on the CPU) need not."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dim() > 0
