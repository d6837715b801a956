"""A PyTorch module, a loss and an optimiser -> the graph of one training step: forward pass, backward pass and update in one program.

The module is exported with its loss; AOT autograd, on which `torch.compile` is built, adds the backward pass that autograd would run and makes all of it functional
(gdp.capture.torch_joint); every trained parameter gets an op that updates it (gdp.capture.torch_update). The conventions of `gdp.capture.torch` hold, and:

- Ops are those below autograd, as PyTorch runs them on a CPU: a linear layer is `t` and `addmm`, attention is one fused op and its gradient another one.
- `phase` tells forward, backward and update apart. An op of the backward pass has the module path of the op whose gradient it computes, an update that of its parameter.
- The optimiser's slots are `param_bytes` of the update. A parameter, what reads it forwards and backwards, its update and its slots share a device, because one copy is kept.
- The gradient of a parameter is summed over all its uses, and it is updated once; what is frozen, or not reached from the loss, is not updated.
- The updates stand at the end, as `optimizer.step()` does.

The program takes `(inputs, targets)` and returns the next values of what it writes (buffers, parameters, slots), and last the loss. Run again with these in place of the
present ones, it takes the next step; `program.module()` keeps them so.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

from gdp.capture.exported import graph_of
from gdp.capture.torch import Captured
from gdp.capture.torch_joint import JointGraph, is_backward, joint_graph
from gdp.capture.torch_tracing import clean, not_captured, quiet_tracing
from gdp.capture.torch_update import UpdateRule, add_update, first_slots, update_rule
from gdp.errors import InputError
from gdp.graph import Phase

_MODULE = "module"
_WRITTEN = {
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingStep:
    """What one training step is made of."""

    module: nn.Module
    """in the mode (training or evaluation) in which it is trained."""
    inputs: tuple[Any, ...]
    """example inputs of the module."""
    targets: tuple[Any, ...]
    """what the loss takes beside the module's output; empty where it needs nothing."""
    loss: Callable[..., torch.Tensor]
    """`loss(module(*inputs), *targets)` is one number; a function, or a module like `nn.CrossEntropyLoss()`."""
    optimizer: torch.optim.Optimizer
    """`torch.optim.SGD`, `Adam` or `AdamW` over the parameters that are trained; it has taken no step."""


def capture_training(step: TrainingStep) -> Captured:
    """The graph of one training step, and the program that computes it from `(step.inputs, step.targets)`.

    Module and example inputs may be on the meta device, where they have shapes and no values; slots are where their parameters are.

    Raises:
        InputError: when a field of the step is not of its type.
        InputError: when the program cannot be exported (as `gdp.capture.torch.capture`), when the loss is no number that depends on a parameter, and for optimisers that
            are not supported.
    """
    _check_kinds(step)
    name = f"the training step of {type(step.module).__module__}.{type(step.module).__qualname__}"
    try:
        with quiet_tracing(gradients=True):
            forward = torch.export.export(_Loss(step.module, step.loss), (step.inputs, step.targets), strict=False)
            _check_loss(forward, name)
            joint = joint_graph(forward)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise not_captured(name, error) from error
    rules = _rules(forward, joint, step.optimizer, name)
    updates = _Updates(forward, joint)
    for placeholder, rule in rules.items():
        updates.add(placeholder, rule)
    program = updates.program()
    clean(program)
    backward = {node.name: Phase.BACKWARD for node in program.graph.nodes if is_backward(node)}
    source = (
        f"{name} with {type(step.optimizer).__name__}, by torch.export and AOT autograd without decompositions (torch {torch.__version__})"
    )
    graph = graph_of(program, source=source, phase={**backward, **dict.fromkeys(updates.nodes, Phase.UPDATE)})
    return Captured(graph=graph, program=program)


def _check_kinds(step: TrainingStep) -> None:
    kinds: dict[str, type] = {"module": nn.Module, "inputs": tuple, "targets": tuple, "optimizer": torch.optim.Optimizer}
    for field, kind in kinds.items():
        value = getattr(step, field)
        if not isinstance(value, kind):
            raise InputError(f"{field} of the TrainingStep is a {type(value).__name__}; it must be a {kind.__name__}")
    if not callable(step.loss):
        raise InputError(f"loss of the TrainingStep is a {type(step.loss).__name__}; it must be a function or a module")


class _Loss(nn.Module):
    def __init__(self, module: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, inputs: tuple[Any, ...], targets: tuple[Any, ...]) -> Any:
        return self.loss(self.module(*inputs), *targets)


def _check_loss(forward: ExportedProgram, name: str) -> None:
    results = forward.graph.output_node().args[0]
    assert isinstance(results, list | tuple)
    value = results[0].meta.get("val") if len(results) == 1 and isinstance(results[0], fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.is_floating_point():
        found = f"a tensor of shape {list(value.shape)} and {value.dtype}" if isinstance(value, torch.Tensor) else f"{len(results)} results"
        raise InputError(f"the loss of {name} is {found}; it must be one floating-point number, such as a mean")


def _rules(forward: ExportedProgram, joint: JointGraph, optimizer: torch.optim.Optimizer, name: str) -> dict[str, UpdateRule]:
    """How each parameter is updated, by placeholder name."""
    rules: dict[str, UpdateRule] = {}
    names_of: dict[int, str] = {}
    for given in forward.graph_signature.input_specs:
        if given.arg.name not in joint.gradient:
            continue
        parameter = forward.state_dict[str(given.target)]
        rule = update_rule(optimizer, parameter)
        if rule is None:
            continue
        rules[given.arg.name] = rule
        target = str(given.target).removeprefix(f"{_MODULE}.")
        other = names_of.setdefault(parameter.untyped_storage()._cdata, target)
        if other != target:
            raise InputError(
                f"the parameters {other!r} and {target!r} of {name} lie in the same memory, where two updates would write; tie them by making them one nn.Parameter"
            )
    if not rules:
        raise InputError(
            f"the loss of {name} depends on no parameter that the optimizer holds; give it the module's parameters, with requires_grad"
        )
    return rules


class _Updates:
    """The joint graph while updates are added to it, with the signature and the state of the program that it becomes."""

    def __init__(self, forward: ExportedProgram, joint: JointGraph) -> None:
        self._forward, self._joint = forward, joint
        self._placeholder = {node.name: node for node in joint.graph.find_nodes(op="placeholder")}
        self._spec = {given.arg.name: given for given in forward.graph_signature.input_specs}
        self._slots: list[InputSpec] = []
        self._state: dict[str, Any] = dict(forward.state_dict)
        self._next_value = dict(joint.next_value)
        self._earlier = set(joint.graph.nodes)

    @property
    def nodes(self) -> list[str]:
        """The names of the ops of the updates."""
        return [node.name for node in self._joint.graph.nodes if node not in self._earlier and node.op == "call_function"]

    def add(self, parameter: str, rule: UpdateRule) -> None:
        """Appends the update of the parameter with this placeholder."""
        target = str(self._spec[parameter].target)
        slots = {name: self._slot(name, target, value) for name, value in first_slots(rule, self._state[target]).items()}
        after = add_update(
            self._joint.graph,
            rule,
            self._placeholder[parameter],
            self._joint.gradient[parameter],
            slots,
            name=target,
            module={target: (target.rpartition(".")[0], "torch.optim")},
        )
        self._next_value |= {slots[name].name if name in slots else parameter: node for name, node in after.items()}

    def _slot(self, name: str, target: str, value: torch.Tensor) -> fx.Node:
        """A new input for a slot, before the user's."""
        graph, state = self._joint.graph, f"optimizer.{name}.{target}"
        first = next((one for one in self._placeholder.values() if self._is_users(one)), None) or next(
            node for node in graph.nodes if node.op != "placeholder"
        )
        with graph.inserting_before(first):
            node = graph.placeholder(f"b_{state.replace('.', '_')}")
        mode = self._joint.loss.meta["val"].fake_mode
        with mode:
            node.meta["val"] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        self._slots.append(InputSpec(kind=InputKind.BUFFER, arg=TensorArgument(name=node.name), target=state, persistent=True))
        self._spec[node.name] = self._slots[-1]
        self._state[state] = value
        return node

    def _is_users(self, node: fx.Node) -> bool:
        return bool(self._spec[node.name].kind == InputKind.USER_INPUT)

    def program(self) -> ExportedProgram:
        """The whole step."""
        graph = self._joint.graph
        specs = list(self._forward.graph_signature.input_specs)
        first_user = next((number for number, given in enumerate(specs) if given.kind == InputKind.USER_INPUT), len(specs))
        specs[first_user:first_user] = self._slots
        written = [
            OutputSpec(kind=_WRITTEN[self._spec[name].kind], arg=TensorArgument(name=node.name), target=self._spec[name].target or name)
            for name, node in self._next_value.items()
        ]
        loss = TensorArgument(name=self._joint.loss.name)
        graph.output((*self._next_value.values(), self._joint.loss))
        for node in graph.nodes:
            stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
            node.meta["nn_module_stack"] = {key: (_without_wrapper(path), kind) for key, (path, kind) in stack.items()}
        entry = self._forward.module_call_graph[0]
        assert entry.signature is not None
        return ExportedProgram(
            root=fx.GraphModule(nn.Module(), graph),
            graph=graph,
            graph_signature=ExportGraphSignature(
                input_specs=specs, output_specs=[*written, OutputSpec(kind=OutputKind.USER_OUTPUT, arg=loss, target=None)]
            ),
            state_dict=self._state,
            range_constraints={},
            module_call_graph=[ModuleCallEntry(fqn="", signature=dataclasses.replace(entry.signature, outputs=[loss]))],
            example_inputs=self._forward.example_inputs,
            constants=self._forward.constants,
        )


def _without_wrapper(path: str) -> str:
    return "" if path == _MODULE else path.removeprefix(f"{_MODULE}.")
