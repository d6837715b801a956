"""What it costs that a TensorFlow device runs one op at a time: an ordered session without grappler beside the session that a user of TensorFlow 1 has, and beside the function
called as users of TensorFlow 2 do, all on one core.

    python benchmarks/tensorflow_order.py [--core 0] [--pairs 40] [--seed 0] [--out benchmarks/results/tensorflow_order.json]

Processor time of a step, which hardly depends on who else uses the machine; short steps are repeated for 30 ms. Each of the other two is run in turn with the ordered session, who
goes first is drawn by lot (`gdp.runtime.timing.in_turn`), and the ratio is that of neighbours. The whole process keeps to the core, so that the function, which uses the threads
that TensorFlow has for all, has one there as well. A called function gets its inputs as tensors, and returns its results as such.
"""

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_program import TensorFlowProgram, keras_program, keras_training_program
from gdp.cli.report_data import environment
from gdp.runtime.tensorflow_program import read_program, write_program
from gdp.runtime.tensorflow_session import Session
from gdp.runtime.timing import Protocol, compare_times, in_turn

BATCH, CLASSES = 16, 10
_MIN_SAMPLE_S = 0.03


def convolutions(keras: Any, *, batch_norm: bool) -> Any:
    x = y = keras.Input((32, 32, 3))
    for channels in (32, 64, 64):
        if batch_norm:
            y = keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Conv2D(channels, 3, padding="same", use_bias=False)(y)))
        else:
            y = keras.layers.Conv2D(channels, 3, padding="same", activation="relu")(y)
    return keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(y)))


def lstm(keras: Any) -> Any:
    x = keras.Input((12, 64))
    y = keras.layers.LSTM(64, unroll=True)(keras.layers.LSTM(64, return_sequences=True, unroll=True)(x))
    return keras.Model(x, keras.layers.Dense(CLASSES)(y))


def attention(keras: Any) -> Any:
    x = y = keras.Input((64, 64))
    for _ in range(3):
        y = keras.layers.LayerNormalization()(y + keras.layers.MultiHeadAttention(4, 16)(y, y))
        y = keras.layers.LayerNormalization()(y + keras.layers.Dense(64)(keras.layers.Dense(256, activation="gelu")(y)))
    return keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(y)))


MODELS: dict[str, Callable[[Any], Any]] = {
    "convolutions with batch norm": lambda keras: convolutions(keras, batch_norm=True),
    "convolutions with bias": lambda keras: convolutions(keras, batch_norm=False),
    "two LSTM layers of 12 steps": lstm,
    "three attention layers": attention,
}


def programs() -> dict[str, TensorFlowProgram]:
    """Inference and a training step of each model."""
    import_tensorflow()
    import keras

    def loss(labels: Any, predictions: Any) -> Any:
        return keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)

    found, generator = {}, np.random.default_rng(0)
    for name, build in MODELS.items():
        keras.utils.set_random_seed(0)
        model = build(keras)
        inputs = generator.standard_normal((BATCH, *model.input_shape[1:]), np.float32)
        labels = generator.integers(0, CLASSES, BATCH).astype(np.int32)
        found[f"{name}, inference"] = keras_program(model, [inputs], source=name)
        optimizer = keras.optimizers.Adam(1e-3)
        found[f"{name}, training"] = keras_training_program(model, loss, optimizer, inputs=inputs, labels=labels, source=name)
    return found


def cost(program: TensorFlowProgram, *, core: int, num_pairs: int, seed: int) -> dict[str, float]:
    """Processor seconds of a step, ordered, in a plain session, and called; and the median ratios of the first to the others, with their 95 % intervals."""
    with tempfile.TemporaryDirectory() as folder:
        graph_path, values_path = Path(folder) / "program.pb", Path(folder) / "values.npz"
        write_program(program.lowered, program.example_inputs, graph_path, values_path)
        read = read_program(graph_path, values_path, program.graph.name)
    ordered, plain = Session(read, [f"cpu:{core}"], [0] * program.graph.num_ops), Session(read, [f"cpu:{core}"], None)
    for session in (ordered, plain):
        session.reset()
        for _ in range(3):
            step_s = session.step_s()
    repeats = max(1, int(_MIN_SAMPLE_S / step_s))

    def processor_s(step: Callable[[], object]) -> Callable[[], float]:
        def sample() -> float:
            begin = process_time()
            for _ in range(repeats):
                step()
            return (process_time() - begin) / repeats

        return sample

    protocol = Protocol(max_pairs=num_pairs, max_time_s=math.inf, precision=0.0, clearly_slower=math.inf, seed=seed)
    found: dict[str, float] = {"num_ops": program.graph.num_ops}
    for name, step in (("plain", plain.step_s), ("called", called(program))):
        compared = compare_times(*in_turn(processor_s(ordered.step_s), processor_s(step), protocol))
        found |= {
            f"{name}_s": compared.incumbent_s,
            f"ordered_beside_{name}_s": compared.candidate_s,
            f"ratio_to_{name}": compared.ratio,
            f"ratio_to_{name}_low": compared.low,
            f"ratio_to_{name}_high": compared.high,
        }
    for session in (ordered, plain):
        session.close()
    return found


def called(program: TensorFlowProgram) -> Callable[[], object]:
    """A step as Python calls the traced function."""
    owner: Any = program.owner
    tensors = [import_tensorflow().constant(value) for value in program.example_inputs]
    return lambda: owner[0](*tensors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tensorflow_order.json"))
    arguments = parser.parse_args()
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    os.sched_setaffinity(0, {arguments.core})
    table = Table("program", "ops", "ordered ms", "plain ms", "ratio", "called ms", "ratio")
    results = {}
    for name, program in programs().items():
        results[name] = one = cost(program, core=arguments.core, num_pairs=arguments.pairs, seed=arguments.seed)
        ratios = {
            to: f"{one[f'ratio_to_{to}']:.3f} [{one[f'ratio_to_{to}_low']:.3f}, {one[f'ratio_to_{to}_high']:.3f}]"
            for to in ("plain", "called")
        }
        seconds = [f"{one[key] * 1e3:.2f}" for key in ("ordered_beside_plain_s", "plain_s", "called_s")]
        table.add_row(name, str(one["num_ops"]), seconds[0], seconds[1], ratios["plain"], seconds[2], ratios["called"])
    Console().print(table)
    document = {"environment": environment(), "pairs": arguments.pairs, "seed": arguments.seed, "programs": results}
    write_text(arguments.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
