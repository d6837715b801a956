"""An exported forward pass that ends in a loss -> forward and backward pass in one functional graph."""

import dataclasses
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx, nn
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, InputMutationAOTOutput, PlainAOTInput, PlainAOTOutput, TangentAOTInput
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

_HOST = torch.device("cpu")
_BACKWARD = "is_backward"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JointGraph:
    """Forward and backward pass. Its placeholders are those of the exported program, under their names; the update adds what it returns."""

    graph: fx.Graph
    loss: fx.Node
    gradient: dict[str, fx.Node]
    """of every parameter that the loss depends on, by placeholder name."""
    next_value: dict[str, fx.Node]
    """of every buffer or input that the program writes, by placeholder name."""


def joint_graph(forward: ExportedProgram) -> JointGraph:
    """Adds the backward pass that autograd would run, traced as on the CPU whatever device the tensors are on. `forward` is used up.

    Nodes keep `val`, and the module that they, or the nodes whose gradient they compute, come from (`nn_module_stack`); `is_backward` tells the two passes apart.
    """
    _move_to_host(forward.graph_module)
    placeholders = [node for node in forward.graph.nodes if node.op == "placeholder"]
    names: list[str] = []
    tensors: list[torch.Tensor] = []
    mode = FakeTensorMode()
    for node, given in zip(placeholders, forward.graph_signature.input_specs, strict=True):
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            trained = given.kind == InputKind.PARAMETER and forward.state_dict[str(given.target)].requires_grad
            names.append(node.name)
            with mode:
                tensors.append(torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, requires_grad=trained))
    with ExitStack() as stack:
        graph = aot_export_joint_with_descriptors(stack, _Interpreted(forward.graph_module), tuple(tensors)).graph_module.graph
    return _named(graph, names, [(node.name, node.meta["val"]) for node in placeholders])


def is_backward(node: fx.Node) -> bool:
    """Whether a node of a joint graph belongs to the backward pass."""
    return node.meta.get("partitioner_tag") == _BACKWARD


class _Interpreted(nn.Module):
    """The exported program as a function of its tensors, run node by node, so that each op is traced with the module it comes from."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__()
        self.programs = (graph_module,)  # no submodule: its state is among the inputs

    def forward(self, *tensors: torch.Tensor) -> Any:
        (program,), given = self.programs, iter(tensors)
        values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
        return fx.Interpreter(program).run(*[next(given) if isinstance(value, torch.Tensor) else value for value in values])


def _move_to_host(graph_module: fx.GraphModule) -> None:
    """Ops that name the device of their result name the host; assertions about devices go."""
    for module in graph_module.modules():
        if not isinstance(module, fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.target == torch.ops.aten._assert_tensor_metadata.default:
                module.graph.erase_node(node)
            else:
                node.args, node.kwargs = fx.node.map_aggregate(
                    (node.args, node.kwargs), lambda one: _HOST if isinstance(one, torch.device) else one
                )
        module.recompile()


class _Values(fx.Interpreter):
    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        if node.op == "call_function":
            node.meta["val"] = value
        return value


def _trace_values_again(graph: fx.Graph) -> None:
    """AOT autograd merges equal ops, after which a view's `val` may not lie in the memory of its input's any more."""
    values = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    modes = [value.fake_mode for value in values if isinstance(value, FakeTensor)]
    graph.set_codegen(fx.graph.CodeGen())  # inputs and outputs are flat
    with modes[0], torch.no_grad():
        _Values(fx.GraphModule(nn.Module(), graph)).run(*values)


def _named(graph: fx.Graph, tensor_names: list[str], placeholders: list[tuple[str, Any]]) -> JointGraph:
    """Renames inputs and reads what the outputs are; the gradient of the loss with respect to itself becomes an op that fills in one."""
    by_name: dict[str, fx.Node] = {}
    tangents = []
    for node in graph.find_nodes(op="placeholder"):
        desc = node.meta["desc"]
        if isinstance(desc, TangentAOTInput):
            tangents.append(node)
        else:
            assert isinstance(desc, PlainAOTInput), f"unknown input {desc}"
            node.name = node.target = tensor_names[desc.idx]
            by_name[node.name] = node
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for name, value in placeholders:
        with graph.inserting_before(first):
            kept = by_name.get(name) or graph.placeholder(name)
        kept.meta["val"] = value if name not in by_name else kept.meta["val"]
        first.prepend(kept)
    loss, gradient, next_value = None, {}, {}
    output = graph.output_node()
    for desc, node in zip(output.meta["desc"], output.args[0], strict=True):  # type: ignore[arg-type]
        if node is None:  # the gradient of what has none
            continue
        match desc:
            case PlainAOTOutput():
                loss = node
            case GradAOTOutput(grad_of=PlainAOTInput(idx=position)):
                gradient[tensor_names[position]] = node
            case InputMutationAOTOutput(mutated_input=PlainAOTInput(idx=position)):
                next_value[tensor_names[position]] = node
            case _:
                raise AssertionError(f"unknown output {desc}")
    assert isinstance(loss, fx.Node)
    with graph.inserting_after(loss):
        one = graph.call_function(torch.ops.aten.ones_like.default, (loss,))
    with loss.meta["val"].fake_mode:
        one.meta = {"val": torch.empty_like(loss.meta["val"]), "partitioner_tag": _BACKWARD}
    for tangent in tangents:
        tangent.replace_all_uses_with(one)
        graph.erase_node(tangent)
    graph.output(())
    graph.erase_node(output)
    _trace_values_again(graph)
    graph.erase_node(graph.output_node())
    for node in graph.nodes:
        kept_keys = ("val", "nn_module_stack", "partitioner_tag")
        node.meta = {"nn_module_stack": node.meta.get("fwd_nn_module_stack"), **node.meta}
        node.meta = {key: node.meta[key] for key in kept_keys if node.meta.get(key) is not None}
    return JointGraph(graph=graph, loss=loss, gradient=gradient, next_value=next_value)
