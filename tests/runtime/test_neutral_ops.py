import math

import pytest
import torch
from torch import nn

from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.runtime.neutral_ops import (
    attention,
    attention_backward,
    has_host_ops,
    laid_out,
    lstm_layer,
    lstm_layer_backward,
    neutral,
    trainable,
)
from gdp.runtime.pieces import cut
from gdp.runtime.stages import Copies, load
from gdp.runtime.values import program_values
from gdp.workloads.torch_modules import Transformer

ATEN = torch.ops.aten
MASKS = {
    "none": None,
    "added": torch.linspace(-1, 1, 35).reshape(5, 7),
    "boolean": torch.arange(35).reshape(5, 7) % 3 > 0,
}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mask", "is_causal", "scale"),
    [("none", False, None), ("none", True, None), ("none", False, 0.3), ("added", False, None), ("boolean", False, 0.3)],
)
@torch.inference_mode()
def test_attention_and_its_gradient_are_the_host_kernels(mask, is_causal, scale):
    query, key, value = random(2, 3, 5, 8), random(2, 3, 7, 8, seed=1), random(2, 3, 7, 8, seed=2)
    options = {"attn_mask": MASKS[mask], "scale": scale}
    expected = ATEN._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, **_for_kernel(options))
    close(attention(query, key, value, 0.0, is_causal, **options), expected)
    grad = random(2, 3, 5, 8, seed=3)
    wanted = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, *expected, 0.0, is_causal, **_for_kernel(options)
    )
    close(attention_backward(grad, query, key, value, *expected, 0.0, is_causal, **options), wanted)


def _for_kernel(options: dict) -> dict:
    """torch turns a boolean mask into one that is added before it calls the kernel."""
    mask = options["attn_mask"]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return {**options, "attn_mask": mask}


def by_formula(given: list[torch.Tensor], *, reverse: bool, has_biases: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """An LSTM layer, step by step (Hochreiter and Schmidhuber 1997, with forget gates; gates in torch's order)."""
    steps, of_input, of_hidden, input_bias, hidden_bias, hidden, cell = given
    outputs = []
    for step in reversed(steps) if reverse else steps:
        gates = step @ of_input.T + hidden[0] @ of_hidden.T + (input_bias + hidden_bias if has_biases else 0)
        entering, forgetting, new, leaving = gates.chunk(4, dim=1)
        cell = forgetting.sigmoid() * cell + entering.sigmoid() * new.tanh()
        hidden = leaving.sigmoid() * cell.tanh()
        outputs.append(hidden[0])
    return torch.stack(outputs[::-1] if reverse else outputs), hidden, cell


@pytest.mark.parametrize("asked", [(True, True, True), (True, False, False), (False, True, False)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("has_biases", [False, True])
def test_lstm_layers_and_their_gradients_are_the_formula_s(reverse, has_biases, asked):
    sizes = [(7, 3, 4), (24, 4), (24, 6), (24,), (24,), (1, 3, 6), (1, 3, 6)]
    given = [(random(*size, seed=number) * 0.5).requires_grad_() for number, size in enumerate(sizes)]
    expected = by_formula(given, reverse=reverse, has_biases=has_biases)
    grads = [random(*result.shape, seed=8 + number) if asked[number] else None for number, result in enumerate(expected)]
    kept = [(result, grad) for result, grad in zip(expected, grads, strict=True) if grad is not None]
    wanted = torch.autograd.grad([result for result, _ in kept], given, [grad for _, grad in kept], allow_unused=True)
    with torch.inference_mode():
        given = [value.detach() for value in given]
        found = lstm_layer(*given, reverse, [], 2, 6, 1, has_biases, False, False, True)[:3]
        close(found, tuple(result.detach() for result in expected))
        rest = (reverse, 2, 6, 1, has_biases, True, False, [], False, torch.empty(0))
        gradients = lstm_layer_backward(*given, *found, *grads, *rest)
    close(gradients, tuple(torch.zeros_like(value) if grad is None else grad for grad, value in zip(wanted, given, strict=True)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.LSTM(8, 12, 2, bidirectional=True, batch_first=True), nn.Linear(24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0].mean(1))


def training_steps() -> dict[str, TrainingStep]:
    loss = nn.functional.cross_entropy
    recurrent, transformer = Recurrent(), Transformer(2, 32, 4, 50, 10, causal=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in (*recurrent.parameters(), *transformer.parameters()):
            parameter.normal_(0, 0.2, generator=generator)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (recurrent, transformer)]
    return {
        "LSTM": TrainingStep(
            module=recurrent, inputs=(random(4, 6, 8),), targets=(torch.arange(4) % 3,), loss=loss, optimizer=optimizers[0]
        ),
        "attention": TrainingStep(
            module=transformer,
            inputs=(torch.arange(40).reshape(4, 10),),
            targets=(torch.arange(40) % 50,),
            loss=lambda output, target: loss(output.flatten(0, 1), target),
            optimizer=optimizers[1],
        ),
    }


def eager(step: TrainingStep) -> dict[str, torch.Tensor]:
    """The parameters after a step, as autograd and the optimiser give them."""
    step.optimizer.zero_grad()
    step.loss(step.module(*step.inputs), *step.targets).backward()
    step.optimizer.step()
    return {f"module.{name}": parameter.detach() for name, parameter in step.module.named_parameters()}


@pytest.mark.parametrize(("name", "make"), [("LSTM", trainable), ("LSTM", neutral), ("attention", neutral)])
def test_training_steps_give_the_parameters_that_autograd_gives(name, make):
    step = training_steps()[name]
    program = capture_training(step).program
    (piece,) = cut(program, {})
    by_name = program_values(program, [*step.inputs, *step.targets], generator=torch.Generator())
    values = [by_name[name].clone() for name in piece.inputs]
    assert has_host_ops([piece.module])
    make(piece.module)
    assert not has_host_ops([piece.module])
    with torch.inference_mode():
        found = piece.module(*values)
    expected = eager(step)
    results = [node.name for node in program.graph.output_node().all_input_nodes]
    found_by_name = dict(zip(piece.outputs, found, strict=True))
    targets = {
        str(spec.target): found_by_name[result]
        for spec, result in zip(program.graph_signature.output_specs, results, strict=True)
        if str(spec.target) in expected
    }
    assert targets.keys() == expected.keys()
    close(tuple(targets.values()), tuple(expected[name] for name in targets))
    assert [value.stride() for value in targets.values()] == [expected[name].stride() for name in targets]


def test_attention_of_a_step_that_trains_no_lstm_stays_the_host_s():
    (piece,) = cut(capture_training(training_steps()["attention"]).program, {})
    trainable(piece.module)
    assert has_host_ops([piece.module])


def test_results_keep_the_strides_they_were_traced_with():
    value = random(2, 3, 5)
    kept = laid_out(value.transpose(0, 1).contiguous().transpose(0, 1), (15, 5, 1))
    assert kept.stride() == (15, 5, 1) and torch.equal(kept, value)
    assert laid_out(value, (15, 5, 1)) is value


def test_every_piece_takes_the_neutral_form_when_one_is_on_another_device():
    program = capture_training(training_steps()["attention"]).program
    fused = [node.name for node in program.graph.nodes if "_for_cpu" in str(node.target)]
    away = {node.name: int(node.name == fused[0]) for node in program.graph.nodes}
    for others, is_neutral in ((torch.device("cpu"), False), (torch.device("meta"), True)):
        pieces = cut(program, away)
        values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
        load(pieces, [torch.device("cpu"), others], values=dict.fromkeys(values, 0), homes={}, results=[], copies=Copies())
        assert has_host_ops(piece.module for piece in pieces) is not is_neutral
