"""The optimiser's part of a PyTorch training step: one fused ATen op a parameter, with its slots.

PyTorch's optimisers do the same with `fused=True`, on CPU and CUDA. The ops are those that return new values instead of writing: a program that is spread over devices
writes into nothing.
"""

import dataclasses
from collections.abc import Mapping
from operator import getitem
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from gdp.errors import InputError

NEXT_STEP = "next_step"
"""The slot of Adam that counts: the number of the step that comes next, from 1 on, where PyTorch keeps that of the last one. So the update reads it, and stays with it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """How one parameter follows its gradient."""

    target: torch._ops.OpOverload
    """the op; it takes and returns lists, here of one tensor each: the parameter, its gradient, its slots."""
    slots: tuple[str, ...]
    """state beside the parameter that is of its shape, in the op's order."""
    counts: bool
    """whether it has the slot `NEXT_STEP`, too."""
    settings: Mapping[str, float | bool]


def update_rule(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> UpdateRule | None:
    """The rule by which `optimizer` updates `parameter`; `None` when it leaves it alone.

    Raises:
        InputError: for another optimiser than SGD, Adam and AdamW, for one that has taken steps, and for settings that the fused ops do not know.
    """
    group = next((one for one in optimizer.param_groups if any(held is parameter for held in one["params"])), None)
    if group is None:
        return None
    if optimizer.state.get(parameter):
        raise InputError("the optimizer has taken steps already; capture the training step with a new one")
    name = type(optimizer).__name__
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        raise InputError(f"the optimizer is {name}; a training step is captured with torch.optim.SGD, Adam or AdamW")
    refused = next((setting for setting in ("amsgrad", "dampening", "differentiable") if group.get(setting)), None)
    if refused is not None:
        raise InputError(
            f"the optimizer {name} has {refused}={group[refused]!r}, which a captured training step does not have; leave it out"
        )
    settings: dict[str, float | bool] = {
        "lr": float(group["lr"]),
        "weight_decay": float(group["weight_decay"]),
        "maximize": bool(group["maximize"]),
    }
    if type(optimizer) is torch.optim.SGD:
        momentum = float(group["momentum"])
        settings |= {"momentum": momentum, "dampening": 0.0, "nesterov": bool(group["nesterov"]), "is_first_step": False}
        slots = ("momentum_buffer",) if momentum else ()
        return UpdateRule(target=torch.ops.aten._fused_sgd.default, slots=slots, counts=False, settings=settings)
    beta1, beta2 = map(float, group["betas"])
    settings |= {"beta1": beta1, "beta2": beta2, "eps": float(group["eps"]), "amsgrad": False}
    decoupled = type(optimizer) is torch.optim.AdamW or group.get("decoupled_weight_decay")
    target = torch.ops.aten._fused_adamw.default if decoupled else torch.ops.aten._fused_adam.default
    return UpdateRule(target=target, slots=("exp_avg", "exp_avg_sq"), counts=True, settings=settings)


def first_slots(rule: UpdateRule, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
    """The slots before the first step, on the parameter's device."""
    slots = {name: torch.zeros_like(parameter, requires_grad=False) for name in rule.slots}
    return slots | ({NEXT_STEP: torch.ones((), device=parameter.device)} if rule.counts else {})


def add_update(
    graph: Graph, rule: UpdateRule, parameter: Node, gradient: Node, slots: Mapping[str, Node], *, name: str, module: Mapping[str, Any]
) -> dict[str, Node]:
    """Appends the update of the parameter `name` to `graph`; the nodes of its next value (under the key `name`) and of its slots'.

    New nodes come from `module` (an `nn_module_stack`). None of them is called `getitem` but for those that a loaded program names by itself.
    """

    def call(
        label: str, target: Any, args: tuple[Any, ...], value: Any, settings: Mapping[str, float | bool] = MappingProxyType({})
    ) -> Node:
        node = graph.create_node("call_function", target, args, dict(settings), name=label)
        node.meta = {"val": value, "nn_module_stack": dict(module)}
        return node

    def new(node: Node) -> torch.Tensor:
        like = node.meta["val"]
        with like.fake_mode:
            return torch.empty_like(like, requires_grad=False)

    underscored = name.replace(".", "_")
    read = [parameter, gradient, *(slots[slot] for slot in rule.slots)]
    lists, values = [[node] for node in read], [[new(node)] for node in read]
    if rule.counts:
        lists, values = [*lists, [], [slots[NEXT_STEP]]], [*values, []]  # the empty list is that of the slots of amsgrad
    elif not rule.slots:
        lists, values = [*lists, []], [*values, []]
    update = call(f"update_{underscored}", rule.target, tuple(lists), tuple(values), rule.settings)
    after: dict[str, Node] = {}
    for position, written in [(0, name), *enumerate(rule.slots, start=2)]:
        (value,) = values[position]
        label = underscored if written == name else f"{written}_{underscored}"
        listed = call(f"all_next_{label}", getitem, (update, position), [value])
        after[written] = call(f"next_{label}", getitem, (listed, 0), value)
    if rule.counts:
        step = slots[NEXT_STEP]
        after[NEXT_STEP] = call(f"count_{underscored}", torch.ops.aten.add.Tensor, (step, 1), new(step))
    return after
