"""Pieces made ready to run: every device gets its list of stages, with slots for values and messages for what passes between devices."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any
from weakref import WeakValueDictionary

import torch

from gdp.runtime.neutral_ops import has_host_ops, neutral
from gdp.runtime.pieces import Piece

NO_PIECE = -1
"""The piece of a stage that only sends an input of the program."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """A piece as its device's thread runs it; slots are positions in the device's list of values."""

    piece: int
    forward: Callable[..., tuple[Any, ...]]
    waits: tuple[tuple[int, int], ...]
    """(device, count): so many messages of that device must have come in this step."""
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    sends: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    """(device, ((own slot, slot there), ...)): one message each."""
    frees: tuple[int, ...]
    """slots that nothing on this device needs afterwards."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Values for the slots of another device."""

    values: tuple[tuple[int, Any], ...]
    """(slot, value)."""
    ready: torch.cuda.Event | None
    """when the values are there, if not at once."""


class Copies:
    """One copy of a value in each memory but the host's, for as long as something loaded has it: placements that are timed in turn share their parameters."""

    def __init__(self) -> None:
        self._copies: WeakValueDictionary[tuple[object, ...], torch.Tensor] = WeakValueDictionary()

    def on(self, device: torch.device, value: Any) -> Any:
        """The value in the memory of the device; what is no tensor needs none."""
        if not isinstance(value, torch.Tensor) or value.device == device:
            return value
        memory = (device, value.data_ptr(), value.shape, value.stride(), value.dtype)
        copy = self._copies.get(memory)
        if copy is None:
            copy = self._copies[memory] = value.to(device)
        return copy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where a value is at the end of a step."""

    device: int
    slot: int


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A cut program with its values on the devices, ready to run."""

    num_pieces: int
    stages: tuple[tuple[Stage, ...], ...]
    """per device, in the order in which it runs them."""
    initial: tuple[tuple[Any, ...], ...]
    """per device, the slots at the start of a step: parameters and inputs, `None` elsewhere."""
    outputs: tuple[Any, ...]
    """a `Place` for what a step computes, else the value itself."""
    values: Mapping[str, Any]
    """what it was made of: its copies are known by the memory of these (`Copies`), which therefore stays theirs."""
    queues: Mapping[tuple[int, int], "SimpleQueue[Message | None]"]
    """per (source, destination); `None` says that the source has failed."""


def load(
    pieces: Sequence[Piece],
    devices: Sequence[torch.device],
    *,
    values: Mapping[str, Any],
    homes: Mapping[str, int],
    results: Sequence[Any],
    copies: Copies,
    compiled: bool = False,
) -> Loaded:
    """Prepares `pieces` to run on `devices`; `compiled` ones by `torch.compile`, each in its device's thread when it first runs.

    `values` holds every placeholder of the program by its FX node name; each is put, before any step, where it is used, unless `copies`
    has it there. A placeholder that `homes` names is an
    input that is born on that device in every step: devices with a memory of their own get it by a transfer. `results` names the program's outputs; one that is
    no string is returned as it is.
    """
    return _Loading(pieces, devices, values, homes, results, copies, compiled).loaded()


class _Loading:
    def __init__(
        self,
        pieces: Sequence[Piece],
        devices: Sequence[torch.device],
        values: Mapping[str, Any],
        homes: Mapping[str, int],
        results: Sequence[Any],
        copies: Copies,
        compiled: bool,
    ) -> None:
        self.pieces, self.devices, self.values, self.results, self.compiled = pieces, devices, values, results, compiled
        self.copies = copies
        self.slot_of: list[dict[str, int]] = [{} for _ in devices]
        self.initial: list[list[Any]] = [[] for _ in devices]
        self.producer = {name: number for number, piece in enumerate(pieces) for name in piece.outputs}
        consumers = [(piece.device, name) for piece in pieces for name in piece.inputs]
        self.born = {
            name: home
            for name, home in homes.items()
            if any(name == taken and devices[device] != devices[home] for device, taken in consumers)
        }
        for device, name in consumers:
            self._slot(device, name)
        for number, piece in enumerate(pieces):
            for name in piece.outputs:
                self._slot(piece.device, name)
            assert all(self.producer.get(name, -1) < number for name in piece.inputs), "a piece takes a value of a later one"
        if has_host_ops(piece.module for piece in pieces if devices[piece.device].type != "cpu"):
            for piece in pieces:  # on the host, too: what the one device's form leaves for the backward pass, the other's must know
                neutral(piece.module)

    def _slot(self, device: int, name: str) -> int:
        """The slot of a value on a device, made when there is none, and filled when the value is there before any step."""
        slots = self.slot_of[device]
        if name not in slots:
            slots[name] = len(slots)
            computed = name in self.producer or self.born.get(name, device) != device
            self.initial[device].append(None if computed else self.copies.on(self.devices[device], self.values[name]))
        return slots[name]

    def loaded(self) -> Loaded:
        stages: list[list[Stage]] = [[] for _ in self.devices]
        messages: Counter[tuple[int, int]] = Counter()
        arrival: dict[tuple[object, int], tuple[int, int]] = {}
        """(piece or input, device) -> the message that announces it there: its source and its number."""
        kept = {name for name in self.results if isinstance(name, str)}
        uses: Counter[tuple[int, str]] = Counter((piece.device, name) for piece in self.pieces for name in piece.inputs)

        def send(source: int, what: object, moves: Mapping[int, list[str]]) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
            for destination in moves:
                messages[source, destination] += 1
                arrival[what, destination] = (source, messages[source, destination])
            return tuple(
                (destination, tuple((self._slot(source, name), self._slot(destination, name)) for name in names))
                for destination, names in moves.items()
            )

        for name, home in self.born.items():
            users = {device: [name] for device in range(len(self.devices)) if device != home and name in self.slot_of[device]}
            sends = send(home, name, users)
            stages[home].append(Stage(piece=NO_PIECE, forward=_nothing, waits=(), arguments=(), results=(), sends=sends, frees=()))
        wanted = self._wanted()
        for number, piece in enumerate(self.pieces):
            sources = [self.producer.get(name, name) for name in piece.inputs]
            arrived = [arrival[source, piece.device] for source in sources if (source, piece.device) in arrival]
            freed = []
            for name in piece.inputs:
                uses[piece.device, name] -= 1
                if (
                    not uses[piece.device, name]
                    and self.initial[piece.device][self._slot(piece.device, name)] is None
                    and not (name in kept and name in self.producer and self.pieces[self.producer[name]].device == piece.device)
                ):
                    freed.append(name)
            freed += [name for name in piece.outputs if not uses[piece.device, name] and name not in kept]
            stages[piece.device].append(
                Stage(
                    piece=number,
                    forward=_forward(piece.module, self.devices[piece.device], compiled=self.compiled),
                    waits=tuple({source: count for source, count in sorted(arrived)}.items()),
                    arguments=tuple(self._slot(piece.device, name) for name in piece.inputs),
                    results=tuple(self._slot(piece.device, name) for name in piece.outputs),
                    sends=send(piece.device, number, wanted[number]),
                    frees=tuple(self._slot(piece.device, name) for name in freed),
                )
            )
        return Loaded(
            num_pieces=len(self.pieces),
            stages=tuple(tuple(of_device) for of_device in stages),
            initial=tuple(tuple(slots) for slots in self.initial),
            outputs=tuple(self._output(result) for result in self.results),
            values=self.values,
            queues={pair: SimpleQueue() for pair in messages},
        )

    def _wanted(self) -> list[dict[int, list[str]]]:
        """For every piece, the other devices that wait for it and the values that each of them takes."""
        wanted: list[dict[int, list[str]]] = [{} for _ in self.pieces]
        for piece in self.pieces:
            for name in piece.inputs:
                if name in self.producer and self.pieces[self.producer[name]].device != piece.device:
                    names = wanted[self.producer[name]].setdefault(piece.device, [])
                    if name not in names:
                        names.append(name)
        return wanted

    def _output(self, result: Any) -> Any:
        if not isinstance(result, str):
            return result
        if result not in self.producer:
            return self.values[result]
        device = self.pieces[self.producer[result]].device
        return Place(device=device, slot=self._slot(device, result))


def _forward(module: torch.fx.GraphModule, device: torch.device, *, compiled: bool) -> Callable[..., tuple[Any, ...]]:
    """The module's forward, compiled or as it is; ops that name the device of their result name this one."""
    moved = [node for node in module.graph.nodes if isinstance(node.kwargs.get("device"), torch.device) and node.kwargs["device"] != device]
    for node in moved:
        node.kwargs = {**node.kwargs, "device": device}
    if moved:
        module.recompile()
    return torch.compile(module.forward, dynamic=False) if compiled else module.forward


def _nothing() -> tuple[Any, ...]:
    return ()
