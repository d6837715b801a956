"""Ops of a program that draw random numbers (dropout, noise), each given a seed of its own, so that a step draws the same numbers under every placement.

The ops of one device share a generator, and devices run at the same time: unseeded, what an op draws would depend on who came first. A seeded op sets the generator of the
device that it runs on and draws, while no other op of the program draws there. (PyTorch itself holds a lock while a kernel draws from a generator.) So every step of a
program draws the same numbers, and outputs can be compared. GPUs draw other numbers than CPUs from the same seed: where outputs are compared over both, all draw on the
host (`Draws.on_host`).
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only


class Draws:
    """How the random ops of one program draw, for all its pieces on all threads."""

    def __init__(self) -> None:
        self.on_host = False
        """whether GPUs' ops take their inputs to the host, draw there, and bring the results back: slow, for comparing outputs alone."""
        self._lock = threading.Lock()

    def seeded(self, operator: Callable[..., Any], seed: int) -> Callable[..., Any]:
        """A function of the arguments of `operator` that draws what `seed` says; `device`, for operators that take one, stays an argument by name."""

        def draw(arguments: tuple[Any, ...], named: dict[str, Any], *, device: torch.device | None = None) -> Any:
            there = _device(arguments, named) if device is None else device
            if self.on_host and there.type != "cpu":
                host_arguments, host_named = tree_map_only(torch.Tensor, torch.Tensor.cpu, (arguments, named))
                drawn = draw(host_arguments, host_named, device=None if device is None else torch.device("cpu"))
                return tree_map_only(torch.Tensor, lambda value: value.to(there), drawn)
            with self._lock:
                _generator(there).manual_seed(seed)
                return operator(*arguments, **(named if device is None else named | {"device": device}))

        return draw


def random_ops(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the ops of `program` that draw random numbers."""
    return [
        node.name
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
        and not _draws_nothing(node, node.target)
    ]


def seed_random_ops(program: torch.export.ExportedProgram, *, seed: int) -> Draws:
    """Gives every random op of `program` a seed, in place: `seed` and the op's number among them."""
    draws, drawing = Draws(), set(random_ops(program))
    for number, node in enumerate(each for each in program.graph.nodes if each.name in drawing):
        named = dict(node.kwargs)
        device = named.pop("device", None)
        node.target = draws.seeded(node.target, seed + number)
        node.args, node.kwargs = (node.args, named), {} if device is None else {"device": device}
    program.graph_module.recompile()
    return draws


def _draws_nothing(node: fx.Node, operator: torch._ops.OpOverload) -> bool:
    """Dropout, attention and recurrent layers draw nothing with probability 0 or outside training."""
    arguments = dict(zip((argument.name for argument in operator._schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    values = {argument.name: arguments.get(argument.name, argument.default_value) for argument in operator._schema.arguments}
    return any(values.get(name, 1) == 0 for name in ("p", "dropout", "dropout_p", "train", "training"))


def _device(arguments: tuple[Any, ...], named: dict[str, Any]) -> torch.device:
    """Where an op with these arguments runs that names no device."""
    tensors = [value for value in torch.utils._pytree.tree_leaves((arguments, named)) if isinstance(value, torch.Tensor)]
    return tensors[0].device if tensors else torch.device("cpu")


def _generator(device: torch.device) -> torch.Generator:
    """The one that ops on this device draw from by default."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator
