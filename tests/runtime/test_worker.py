import dataclasses
import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
import weakref

import pytest
import torch
from branching_net import NAMES, branching_input, branching_program
from torch import nn
from torch.nn.functional import cross_entropy

from gdp.capture.torch import capture
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.measurement import Status
from gdp.runtime import process
from gdp.runtime.executor import Executor, StepFailed
from gdp.runtime.pieces import cut
from gdp.runtime.process import Child, ChildFailed
from gdp.runtime.stages import Copies
from gdp.runtime.stages import load as load_on
from gdp.runtime.values import allowed_differences, difference, disturbed, on_host, program_values, start_of_outputs
from gdp.runtime.worker import Bench

QUICK = {"max_warm_up": 1, "max_pairs": 6}


def scripted(script: str) -> Child:
    """A child that runs `script`, in which `answers` is the pipe for answers."""
    opening = "import os, sys, time, json\nanswers = open(int(sys.argv[1]), 'w')\n"
    return Child([sys.executable, "-c", opening + textwrap.dedent(script)], environment=os.environ)


def failure(child: Child, *, timeout_s: float = 60.0) -> ChildFailed:
    with pytest.raises(ChildFailed) as caught:
        child.ask({}, timeout_s=timeout_s)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    return caught.value


def until_said(child: Child, words: bytes) -> None:
    """Waits until the child has written the words to its standard error."""
    while words not in os.pread(child._errors.fileno(), 2**16, 0):
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie; one that was just killed is given a moment."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return False
        except FileNotFoundError:
            return False
        time.sleep(0.05)
    return True


def test_a_child_answers_whatever_else_it_prints():
    child = scripted("""
        for line in sys.stdin:
            print("chatter", flush=True)
            os.write(1, b"more chatter")
            answers.write(json.dumps({"twice": 2 * json.loads(line)["number"]}) + chr(10)); answers.flush()
    """)
    assert [child.ask({"number": number}, timeout_s=60.0) for number in (1, 4)] == [{"twice": 2}, {"twice": 8}]
    child.close()


def test_a_crash_tells_its_last_words():
    failed = failure(scripted("sys.stdin.readline(); print('out of luck', file=sys.stderr); sys.exit(3)"))
    assert failed.status == Status.FAILED
    assert "exit code 3: out of luck" in failed.detail


def test_a_kill_is_a_failure():
    failed = failure(scripted("sys.stdin.readline(); os.kill(os.getpid(), 9)"))
    assert (failed.status, "SIGKILL" in failed.detail) == (Status.FAILED, True)


def test_a_hang_runs_out_of_time():
    failed = failure(scripted("time.sleep(1000)"), timeout_s=0.5)
    assert failed.status == Status.TIMED_OUT
    assert "0.5 s" in failed.detail


def test_a_kill_by_a_signal_without_a_name_is_a_failure():
    failed = failure(scripted("sys.stdin.readline(); os.kill(os.getpid(), 40)"))
    assert (failed.status, "by signal 40" in failed.detail) == (Status.FAILED, True)


@pytest.mark.parametrize("answer", ["nonsense", "[1, 2]", "{", "[" * 5000])
def test_nonsense_is_a_failure(answer):
    failed = failure(scripted(f"sys.stdin.readline(); answers.write({answer!r} + chr(10)); answers.flush(); time.sleep(1000)"))
    assert failed.status == Status.FAILED
    assert "JSON" in failed.detail


def test_a_child_that_takes_no_request_runs_out_of_time():
    child = scripted("time.sleep(1000)")
    with pytest.raises(ChildFailed, match="did not take its request within 0.5 s") as caught:
        child.ask({"long": "x" * 2**20}, timeout_s=0.5)
    assert caught.value.status == Status.TIMED_OUT


def test_a_long_answer_arrives_whole_and_one_that_never_ends_is_a_failure():
    child = scripted("""
        sys.stdin.readline()
        answers.write(json.dumps({"long": "x" * 2**24}) + chr(10)); answers.flush()
        sys.stdin.readline()
        while True:
            answers.write(" " * 2**24); answers.flush()
    """)
    assert child.ask({}, timeout_s=60.0) == {"long": "x" * 2**24}
    failed = failure(child)
    assert (failed.status, f"over {2**28} bytes" in failed.detail) == (Status.FAILED, True)


@pytest.mark.parametrize("closed", ["answers.close()", "os.close(0)"])
def test_a_child_that_closes_a_pipe_and_lives_on_is_a_failure(closed):
    child = scripted(f"print('ready', file=sys.stderr); {closed}; time.sleep(1000)")
    until_said(child, b"ready")
    failed = failure(child)
    assert (failed.status, "closed its pipe" in failed.detail) == (Status.FAILED, True)


def test_an_answer_to_no_question_is_a_failure():
    child = scripted("""
        sys.stdin.readline()
        answers.write("{}" + chr(10) + "{}" + chr(10)); answers.flush()
        time.sleep(1000)
    """)
    assert child.ask({}, timeout_s=60.0) == {}
    assert "before it was asked" in failure(child).detail


def test_a_crash_is_seen_though_a_grandchild_holds_the_pipe_and_the_grandchild_is_ended():
    child = scripted("""
        import subprocess
        sys.stdin.readline()
        grandchild = subprocess.Popen(["sleep", "1000"], pass_fds=(answers.fileno(),))
        answers.write(json.dumps({"pid": grandchild.pid}) + chr(10)); answers.flush()
        sys.stdin.readline()
        os.abort()
    """)
    grandchild = child.ask({}, timeout_s=60.0)["pid"]
    failed = failure(child, timeout_s=1000.0)
    assert (failed.status, "SIGABRT" in failed.detail) == (Status.FAILED, True)
    assert not runs(grandchild)


def test_a_process_that_cannot_be_started_is_a_failure_and_leaves_no_file_open():
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ChildFailed, match="could not be started: No such file") as caught:
        Child(["/nowhere"], environment={})
    assert (caught.value.status, os.listdir("/proc/self/fd")) == (Status.FAILED, before)


def test_a_system_without_room_for_a_temporary_file_is_a_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(process.tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ChildFailed, match="could not be started: No such file") as caught:
        Child([sys.executable, "-c", ""], environment=os.environ)
    assert caught.value.status == Status.FAILED


def test_a_kill_by_the_system_is_a_lack_of_memory(monkeypatch):
    child = scripted("sys.stdin.readline(); os.kill(os.getpid(), 9)")
    killed = process._oom_kills()
    monkeypatch.setattr(process, "_oom_kills", lambda: killed + 1)
    assert failure(child).status == Status.OUT_OF_MEMORY


def test_a_long_request_arrives_whole():
    child = scripted("""
        answers.write(json.dumps({"length": len(json.loads(sys.stdin.readline())["long"])}) + chr(10)); answers.flush()
    """)
    assert child.ask({"long": "x" * 2**21}, timeout_s=60.0) == {"length": 2**21}
    child.close()


def test_the_worker_ends_with_its_parent_and_removes_its_files(tmp_path):
    folder = tmp_path / "gdp-files"
    folder.mkdir()
    (folder / "program.pt2").write_text("")
    script = f"""
        import os, sys, time
        from gdp.runtime.process import Child
        child = Child([sys.executable, "-m", "gdp.runtime.worker", {str(folder)!r}], environment={{**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}})
        print(child.pid, flush=True)
        child.ask({{"command": "nonsense"}}, timeout_s=120)
        print("answered", flush=True)
        time.sleep(1000)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "answered\n"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
    assert not folder.exists()


def load(bench: Bench, folder, program: torch.export.ExportedProgram, ops: list[str], inputs: list[torch.Tensor]) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its tree specifications
        torch.export.save(program, folder / "program.pt2")
    torch.save(inputs, folder / "inputs.pt")
    return bench.answer(
        {"command": "load", "program": str(folder / "program.pt2"), "inputs": str(folder / "inputs.pt"), "ops": ops, "seed": 0}
    )


@pytest.fixture
def bench():
    threads = torch.get_num_threads()
    bench = Bench()
    yield bench
    bench.close()
    torch.set_num_threads(threads)


def test_a_bench_measures_and_profiles(bench, tmp_path):
    captured = branching_program()
    ops = list(captured.graph.name)
    assert load(bench, tmp_path, captured.program, ops, [branching_input()]) == {"ok": True}
    one, alternating = [0] * len(ops), [number % 2 for number in range(len(ops))]
    first = bench.answer({"command": "measure", "devices": NAMES, "candidate": one, "incumbent": None, "protocol": QUICK})
    assert (len(first["candidate_s"]), first["incumbent_s"], first["busy_s"][1]) == (6, [], 0.0)
    second = bench.answer({"command": "measure", "devices": NAMES, "candidate": alternating, "incumbent": one, "protocol": QUICK})
    assert (len(second["candidate_s"]), len(second["incumbent_s"])) == (6, 6)
    assert min(second["candidate_s"] + second["incumbent_s"] + second["busy_s"]) > 0
    profile = bench.answer({"command": "profile", "device": NAMES[0], "num_steps": 3, "max_time_s": 10.0})
    calls = [node.name for node in captured.program.graph.nodes if node.op == "call_function"]
    assert set(profile["op_s"]) == {name for name in calls if not name.startswith("getitem")}
    assert min(profile["op_s"].values()) > 0


def _wrongly_cut(program, device_of_op):
    """Pieces of a program that negates what it should return."""
    pieces = cut(program, device_of_op)
    return [dataclasses.replace(piece, module=_negated(piece.module)) for piece in pieces]


def _negated(module):
    output = next(node for node in module.graph.nodes if node.op == "output")
    with module.graph.inserting_before(output):
        output.args = (tuple(module.graph.call_function(torch.ops.aten.neg.default, (value,)) for value in output.args[0]),)
    module.recompile()
    return module


def test_wrong_outputs_are_a_failure(bench, tmp_path, monkeypatch):
    captured = capture(nn.ReLU(), (torch.ones(3),))
    load(bench, tmp_path, captured.program, list(captured.graph.name), [torch.ones(3)])
    monkeypatch.setattr("gdp.runtime.worker.cut", _wrongly_cut)
    request = {"command": "measure", "devices": NAMES, "candidate": [0] * captured.graph.num_ops, "incumbent": None, "protocol": QUICK}
    assert "outputs differ from those of the unplaced program: output 0 by up to 2" in bench.answer(request)["failed"]


def test_inputs_that_were_on_a_gpu_are_loaded_on_the_host(bench, tmp_path, monkeypatch):
    captured = capture(nn.ReLU(), (torch.ones(3),))
    ops = list(captured.graph.name)
    assert load(bench, tmp_path, captured.program, ops, [torch.ones(3)]) == {"ok": True}
    inputs = str(tmp_path / "inputs.pt")
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _: "cuda:99")
    torch.save([torch.ones(3)], inputs)
    request = {"command": "load", "program": str(tmp_path / "program.pt2"), "inputs": inputs, "ops": ops, "seed": 0}
    assert bench.answer(request) == {"ok": True}


def test_after_a_failure_nothing_is_freed_before_the_answer_and_all_is_loaded_anew_after_it(bench, tmp_path, monkeypatch):
    captured = capture(nn.ReLU(), (torch.ones(3),))
    load(bench, tmp_path, captured.program, list(captured.graph.name), [torch.ones(3)])
    placed = [0] * captured.graph.num_ops
    measure = {"command": "measure", "devices": NAMES[:1], "candidate": placed, "incumbent": None, "protocol": QUICK}
    assert "candidate_s" in bench.answer(measure)
    held = []

    def fail(self, loaded):
        on_gpu = torch.ones(3)
        held.extend([weakref.ref(on_gpu), weakref.ref(loaded)])
        raise StepFailed("CUDA error: an illegal memory access was encountered")

    with monkeypatch.context() as failing:
        failing.setattr(Executor, "step", fail)
        assert bench.answer(measure) == {"failed": "CUDA error: an illegal memory access was encountered"}
    gc.collect()
    assert all(value() is not None for value in held)
    freed = []

    def seen_cut(*given):
        gc.collect()
        freed.append(all(value() is None for value in held))
        return cut(*given)

    monkeypatch.setattr("gdp.runtime.worker.cut", seen_cut)
    assert "candidate_s" in bench.answer(measure)
    assert freed == [True]


def test_lack_of_memory_is_told_apart(bench, tmp_path):
    class Huge(nn.Module):
        def forward(self, x):
            return x.repeat(2**51).sum()  # more than an address can name

    captured = capture(Huge(), (torch.ones(1, device="meta"),))
    answer = load(bench, tmp_path, captured.program, list(captured.graph.name), [torch.ones(1)])
    assert list(answer) == ["out_of_memory"]


def test_updates_that_are_nothing_but_rounding_are_no_difference(bench, tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 3, 32, 32, generator=generator), torch.arange(8) % 5
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)
    ).train()
    optimizer = torch.optim.Adam(module.parameters())
    captured = capture_training(TrainingStep(module=module, inputs=(x,), targets=(y,), loss=cross_entropy, optimizer=optimizer))
    ops = list(captured.graph.name)
    set_num_threads = torch.set_num_threads
    with monkeypatch.context() as two_cores:  # a device of one core sums in another order than the unplaced program on two
        two_cores.setattr(torch, "set_num_threads", lambda _: set_num_threads(2))
        assert load(bench, tmp_path, captured.program, ops, [x, y]) == {"ok": True}
    measure = {"command": "measure", "devices": NAMES[:1], "candidate": [0] * len(ops), "incumbent": None, "protocol": QUICK}
    assert "candidate_s" in bench.answer(measure)
    # the oracle of this test: without what rounding alone does, the same run is told to differ
    bench._kept.clear()
    bench._allowed = allowed_differences(bench._reference, bench._reference, bench._start, bench._start)
    assert "differ" in bench.answer(measure)["failed"]


def test_outputs_are_compared_without_tf32_and_steps_timed_with_it(bench, tmp_path, monkeypatch):
    captured = branching_program()
    ops = list(captured.graph.name)
    assert load(bench, tmp_path, captured.program, ops, [branching_input()]) == {"ok": True}
    seen: list[bool] = []
    step = Executor.step
    monkeypatch.setattr(Executor, "step", lambda *given: seen.append(torch.backends.cudnn.allow_tf32) or step(*given))
    measure = {"command": "measure", "devices": NAMES[:1], "candidate": [0] * len(ops), "incumbent": None, "protocol": QUICK}
    assert "candidate_s" in bench.answer(measure)
    assert torch.backends.cudnn.allow_tf32 and seen == [False] + [True] * (len(seen) - 1)


class Counted(nn.Module):
    def forward(self, x):
        return x + torch.arange(4, device=x.device)


def counted_on(device: str) -> torch.export.ExportedProgram:
    """A program whose `arange` names the device, as one does that was captured there."""
    program = capture(Counted(), (torch.ones(4),)).program
    node = next(node for node in program.graph.nodes if node.name == "arange")
    node.kwargs = {**node.kwargs, "device": torch.device(device)}
    return program


@pytest.mark.parametrize("device", ["meta", "cuda:0"])
def test_a_program_captured_elsewhere_is_run_on_the_host(device):
    program = on_host(counted_on(device))
    assert torch.equal(program.graph_module(torch.ones(4))[0], torch.arange(4) + 1.0)


def test_an_op_that_names_the_device_of_its_result_names_its_own_when_placed():
    program = counted_on("cpu")
    results = [node.name for node in program.graph.output_node().args[0]]
    placed = load_on(
        cut(program, {"arange": 1, "add": 1}),
        [torch.device("cpu"), torch.device("meta")],
        values={"x": torch.ones(4)},
        homes={},
        results=results,
        copies=Copies(),
    )
    (stage,) = placed.stages[1]
    (total,) = stage.forward(torch.ones(4, device="meta"))
    assert total.device.type == "meta"


def test_differences_of_outputs():
    ones = torch.ones(4)
    assert difference([ones * (1 + 1e-5), 3], [ones, 3]) == ""
    assert difference([torch.tensor([1, 2])], [torch.tensor([1, 2])]) == ""
    assert "by up to 0.5" in difference([ones, ones * 1.5], [ones, ones])
    assert "by up to 1" in difference([torch.tensor([1, 3])], [torch.tensor([1, 2])])
    assert "int32" in difference([torch.ones(2, dtype=torch.int32)], [torch.ones(2)])
    assert "finite" in difference([torch.tensor([1.0, float("nan")])], [torch.tensor([1.0, 2.0])])
    assert difference([torch.tensor([1.0, float("nan")])], [torch.tensor([1.0, float("nan")])]) == ""
    assert "4 instead of 3" in difference([4], [3])
    for one, other in itertools.permutations((float("inf"), -float("inf"), float("nan")), 2):
        assert "infinite" in difference([torch.tensor([1.0, one])], [torch.tensor([1.0, other])])
    infinite = torch.tensor([1.0, -float("inf")])
    assert difference([infinite * (1 + 1e-6)], [infinite]) == ""
    for other in (float("nan"), float("inf")):
        assert "infinite" in difference([torch.tensor([1.0, other])], [infinite])
    assert "by up to 2" in difference([torch.tensor([1 - 1j])], [torch.tensor([1 + 1j])])
    assert "by up to 1" in difference([torch.tensor([2**53 + 1])], [torch.tensor([2**53])])


def allowances(program: torch.export.ExportedProgram, values: dict[str, object]) -> tuple[tuple[object, ...], list[float]]:
    """The outputs on one thread, and what is allowed."""
    near = {name: disturbed(value, torch.Generator()) for name, value in values.items()}
    runs = [program.graph_module(*each.values()) for each in (values, near)]
    return runs[0], allowed_differences(*runs, *(start_of_outputs(program, each) for each in (values, near)))


def convolution_with_bias_before_batch_norm() -> TrainingStep:
    """The gradient of the bias is nothing but rounding."""
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 256, 10)).train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.1, generator=generator)
    images, labels = torch.randn(16, 3, 16, 16, generator=generator), torch.randint(0, 10, (16,), generator=generator)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.0)
    return TrainingStep(module=module, inputs=(images,), targets=(labels,), loss=nn.functional.cross_entropy, optimizer=optimizer)


def test_a_training_step_may_differ_by_what_rounding_carries_and_not_by_its_updates():
    step = convolution_with_bias_before_batch_norm()
    program = capture_training(step).program
    values = program_values(program, [*step.inputs, *step.targets], generator=torch.Generator())
    expected, allowed = allowances(program, values)
    rounded = program.graph_module(*[disturbed(value, torch.Generator().manual_seed(7)) for value in values.values()])
    start = start_of_outputs(program, values)
    slots = [number for number, spec in enumerate(program.graph_signature.output_specs) if "optimizer" in str(spec.target)]
    assert difference([rounded[number] for number in slots], [expected[number] for number in slots])  # without what is allowed for rounding
    assert (
        difference([rounded[number] for number in slots], [expected[number] for number in slots], [allowed[number] for number in slots])
        == ""
    )
    weight = next(number for number, spec in enumerate(program.graph_signature.output_specs) if spec.target == "module.4.weight")
    not_updated = [*expected[:weight], start[weight], *expected[weight + 1 :]]
    assert difference(not_updated, expected) == ""
    assert f"output {weight} by up to 0.0001" in difference(not_updated, expected, allowed)
