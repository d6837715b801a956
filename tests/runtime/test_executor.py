import dataclasses
import errno
import gc
import os
import threading
import weakref

import pytest
import torch
from branching_net import CORES, NAMES, branching_input, branching_program
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gdp.capture.torch import capture
from gdp.runtime.core_sets import cores_of
from gdp.runtime.executor import Executor, StepFailed
from gdp.runtime.pieces import cut
from gdp.runtime.stages import Copies, Loaded, Place, load
from gdp.runtime.streams import Streams
from gdp.runtime.values import difference, program_values

CAPTURED = branching_program()
OPS = CAPTURED.graph.name


@pytest.fixture(scope="module")
def executor():
    with Executor(NAMES) as running:
        yield running


def loaded(executor: Executor, program: torch.export.ExportedProgram, device_of_op: dict[str, int], inputs: list[torch.Tensor]) -> Loaded:
    results = [node.name for node in program.graph.output_node().args[0]]
    values = program_values(program, inputs, generator=torch.Generator())
    return executor.load(cut(program, device_of_op), values=values, homes={}, results=results)


@given(device=st.lists(st.integers(0, 1), min_size=len(OPS), max_size=len(OPS)))
@settings(max_examples=25, deadline=None)
def test_outputs_are_those_of_the_unplaced_program(executor, device):
    program = CAPTURED.program
    values = program_values(program, [branching_input()], generator=torch.Generator())
    with torch.inference_mode():
        expected = program.graph_module(*values.values())
    placed = loaded(executor, program, dict(zip(OPS, device, strict=True)), [branching_input()])
    for _ in range(3):
        step = executor.step(placed)
        # one thread on either side, the same kernels: equal to the last bit
        assert all(torch.equal(output, value) for output, value in zip(step.outputs, expected, strict=True))
    assert all(busy_s <= step.step_time_s for busy_s in step.busy_s)
    assert sum(step.busy_s) == pytest.approx(sum(step.piece_s))


@given(device=st.lists(st.integers(0, 1), min_size=len(OPS), max_size=len(OPS)))
@settings(max_examples=25, deadline=None)
def test_every_value_is_freed_but_the_outputs(executor, device):
    placed = loaded(executor, CAPTURED.program, dict(zip(OPS, device, strict=True)), [branching_input()])
    arrived = [
        {there for stages in placed.stages for stage in stages for to, moves in stage.sends if to == number for _, there in moves}
        for number in (0, 1)
    ]
    for number, stages in enumerate(placed.stages):
        computed = [slot for stage in stages for slot in stage.results]
        freed = [slot for stage in stages for slot in stage.frees]
        outputs = {where.slot for where in placed.outputs if isinstance(where, Place) and where.device == number}
        assert len(set(freed)) == len(freed)
        assert set(freed) == (set(computed) | arrived[number]) - outputs


@pytest.mark.slow
def test_compiled_pieces_compute_the_same(executor, monkeypatch):
    monkeypatch.setattr(torch._inductor.config, "compile_threads", 1)
    program = CAPTURED.program
    values = program_values(program, [branching_input()], generator=torch.Generator())
    with torch.inference_mode():
        expected = program.graph_module(*values.values())
    pieces = cut(program, {op: number // 4 % 2 for number, op in enumerate(OPS)})
    results = [node.name for node in program.graph.output_node().args[0]]
    placed = executor.load(pieces, values=values, homes={}, results=results, compiled=True)
    assert len(pieces) > 2
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for _ in range(2):
        assert difference(executor.step(placed).outputs, expected) == ""
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == len(pieces)


class Lookup(nn.Module):
    def forward(self, table, index, x):
        row = torch.index_select(table, 0, index)
        return x.sin() + row.exp().sum()


def test_a_piece_that_raises_stops_every_device_and_the_executor_goes_on(executor):
    table, x = torch.ones(3, 2), torch.ones(4)
    program = capture(Lookup(), (table, torch.tensor([1]), x)).program
    device_of_op = {"index_select": 1, "exp": 0, "sum_1": 1, "sin": 0, "add": 0}
    good = loaded(executor, program, device_of_op, [table, torch.tensor([1]), x])
    bad = loaded(executor, program, device_of_op, [table, torch.tensor([7]), x])
    (before,) = executor.step(good).outputs
    with pytest.raises(StepFailed, match="index out of range"):
        executor.step(bad)
    (after,) = executor.step(good).outputs
    assert torch.equal(before, after)
    assert before[0] == pytest.approx(torch.ones(1).sin().item() + 2 * torch.ones(1).exp().item())


class Passed(nn.Module):
    def forward(self, x):
        return x, x.exp().sum()


def test_an_input_that_is_an_output_too_is_sent_to_another_memory():
    program = capture(Passed(), (torch.ones(4),)).program
    results = [node.name for node in program.graph.output_node().args[0]]
    values = program_values(program, [torch.ones(4)], generator=torch.Generator())
    memories = [torch.device("cpu"), torch.device("meta")]
    placed = load(cut(program, {"exp": 1, "sum_1": 1}), memories, values=values, homes={results[0]: 0}, results=results, copies=Copies())
    assert placed.stages[0][0].sends and [stage.piece for stage in placed.stages[1]] == [0]
    assert torch.equal(placed.outputs[0], torch.ones(4)) and isinstance(placed.outputs[1], Place)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).relu())


def test_placements_and_ops_with_tied_parameters_share_one_copy_in_another_memory():
    program = capture(Tied(), (torch.ones(4),)).program
    values = program_values(program, [torch.ones(4)], generator=torch.Generator())
    memories, copies = [torch.device("cpu"), torch.device("meta")], Copies()
    placed = [
        load(cut(program, dict.fromkeys(OPS, 0) | device_of_op), memories, values=values, homes={}, results=[], copies=copies)
        for device_of_op in ({"linear": 1, "relu": 1, "linear_1": 1}, {"linear": 1, "relu": 0, "linear_1": 1})
    ]
    weights = [value for each in placed for value in each.initial[1] if value is not None and value.dim() == 2]
    assert len(weights) == 2 and len({id(weight) for weight in weights}) == 1
    kept = weakref.ref(weights.pop())
    weights.clear()
    assert kept() is not None
    placed.clear()
    gc.collect()
    assert kept() is None


def test_threads_are_pinned_and_end_with_the_executor():
    before = threading.enumerate()
    x = torch.ones(4)
    program = capture(Lookup(), (torch.ones(3, 2), torch.tensor([1]), x)).program
    device_of_op = {"index_select": 1, "exp": 0, "sum_1": 1, "sin": 0, "add": 0}
    with Executor(NAMES) as running:
        running.step(
            loaded(running, program, device_of_op, [torch.ones(3, 2), torch.tensor([1]), x])
        )  # so that both have come to pin themselves
        own = [thread for thread in threading.enumerate() if thread.name in NAMES and thread not in before]
        pinned = {thread.name: os.sched_getaffinity(thread.native_id) for thread in own}
    assert pinned == {name: set(cores_of(name)) for name in NAMES}
    assert not any(thread.is_alive() for thread in own)


@pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")
def test_a_device_uses_as_many_threads_as_it_has_cores():
    """In every step: another device, or whoever loads, may have set another number meanwhile."""
    program = capture(nn.ReLU(), (torch.ones(4),)).program
    seen: list[tuple[int, int]] = []

    def forward(x):
        seen.append((torch.get_num_threads(), len(os.sched_getaffinity(0))))
        torch.set_num_threads(7)
        return (x,)

    with Executor([f"cpu:{CORES[0]},{CORES[1]}"]) as running:
        placed = loaded(running, program, {"relu": 0}, [torch.ones(4)])
        ((stage,),) = placed.stages
        placed = dataclasses.replace(placed, stages=((dataclasses.replace(stage, forward=forward),),))
        for _ in range(2):
            running.step(placed)
    assert seen == [(2, 2), (2, 2)]


def test_cores_that_are_gone_fail_the_step_and_hang_nobody(monkeypatch):
    program = capture(Lookup(), (torch.ones(3, 2), torch.tensor([1]), torch.ones(4))).program
    with Executor(NAMES) as running:
        gone = OSError(errno.EINVAL, "Invalid argument")
        monkeypatch.setattr(os, "sched_setaffinity", lambda *_: (_ for _ in ()).throw(gone))
        with pytest.raises(StepFailed, match="Invalid argument"):
            running.step(loaded(running, program, {"index_select": 1, "exp": 0}, [torch.ones(3, 2), torch.tensor([1]), torch.ones(4)]))


def test_a_device_that_fails_settles_what_it_began_before_the_step_is_over(monkeypatch):
    settled: list[tuple[int, str]] = []
    monkeypatch.setattr(Streams, "settle", lambda _, number: settled.append((number, threading.current_thread().name)))
    x = torch.ones(4)
    program = capture(Lookup(), (torch.ones(3, 2), torch.tensor([1]), x)).program
    device_of_op = {"index_select": 1, "exp": 0, "sum_1": 1, "sin": 0, "add": 0}
    with Executor(NAMES) as running:
        with pytest.raises(StepFailed, match="index out of range"):
            running.step(loaded(running, program, device_of_op, [torch.ones(3, 2), torch.tensor([7]), x]))
        assert sorted(settled) == list(enumerate(NAMES))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@given(device=st.lists(st.integers(0, 1), min_size=len(OPS), max_size=len(OPS)))
@settings(max_examples=25, deadline=None)
def test_a_gpu_beside_a_core(device):
    program = CAPTURED.program
    values = program_values(program, [branching_input()], generator=torch.Generator())
    with torch.inference_mode():
        expected = program.graph_module(*values.values())
    with Executor([NAMES[0], "cuda:0"]) as executor:
        device_of_op = dict(zip(OPS, device, strict=True))
        results = [node.name for node in program.graph.output_node().args[0]]
        placed = executor.load(cut(program, device_of_op), values=values, homes={"x": device[0]}, results=results)
        for _ in range(3):
            for output, value in zip(executor.step(placed).outputs, expected, strict=True):
                torch.testing.assert_close(output.cpu(), value, rtol=1e-3, atol=1e-3)  # TF32 convolutions


class Expanded(nn.Module):
    def forward(self, x):
        channels_last = x.expand(2, 4, 3, 4).contiguous(memory_format=torch.channels_last)
        return (
            x.expand(3, 4).exp(),
            x.expand(5, 3, 4)[:, :, 1:3].exp(),
            channels_last[:, 1:3].exp(),
            x.to(torch.complex64).mul(1j).conj().exp(),
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("views_on", [0, 1])
def test_views_with_strides_of_their_own_cross_to_and_from_a_gpu(views_on):
    x = torch.arange(12.0).view(3, 4)[1:2]
    program = capture(Expanded(), (x,)).program
    ops = [node.name for node in program.graph.nodes if node.op == "call_function"]
    device_of_op = {op: 1 - views_on if op.startswith("exp") and "expand" not in op else views_on for op in ops}
    with Executor([NAMES[0], "cuda:0"]) as executor:
        for output, expected in zip(executor.step(loaded(executor, program, device_of_op, [x])).outputs, Expanded()(x), strict=True):
            torch.testing.assert_close(output.cpu(), expected)
