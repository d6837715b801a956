"""What it costs that a TensorFlow device runs one op at a time: an ordered session without grappler beside the session that a user has, both on one core.

    python benchmarks/tensorflow_order.py [--core 0] [--pairs 40] [--out benchmarks/results/tensorflow_order.json]

Processor time of a step, which hardly depends on who else uses the machine; short steps are repeated for 30 ms. The two are run in turn, and the ratio is that of neighbours.
"""

import argparse
import json
import os
import platform
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
from gdp.runtime.tensorflow_program import read_program, write_program
from gdp.runtime.tensorflow_session import Session
from gdp.runtime.timing import median_interval

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


def cost(program: TensorFlowProgram, *, core: int, num_pairs: int) -> dict[str, float]:
    """Processor seconds of a step, plain and ordered, and the median ratio with its 95 % interval."""
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
    seconds: dict[Session, list[float]] = {ordered: [], plain: []}
    for pair in range(num_pairs):
        for session in (ordered, plain) if pair % 2 else (plain, ordered):
            begin = process_time()
            for _ in range(repeats):
                session.step_s()
            seconds[session].append((process_time() - begin) / repeats)
    interval = median_interval([a / b for a, b in zip(seconds[ordered], seconds[plain], strict=True)])
    for session in (ordered, plain):
        session.close()
    return {
        "num_ops": program.graph.num_ops,
        "plain_s": float(np.median(seconds[plain])),
        "ordered_s": float(np.median(seconds[ordered])),
        "ratio": interval.median,
        "ratio_low": interval.low,
        "ratio_high": interval.high,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tensorflow_order.json"))
    arguments = parser.parse_args()
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    table = Table("program", "ops", "plain ms", "ordered ms", "ratio", "95 %")
    results = {}
    for name, program in programs().items():
        results[name] = one = cost(program, core=arguments.core, num_pairs=arguments.pairs)
        interval = f"{one['ratio_low']:.3f} to {one['ratio_high']:.3f}"
        table.add_row(
            name, str(one["num_ops"]), f"{one['plain_s'] * 1e3:.2f}", f"{one['ordered_s'] * 1e3:.2f}", f"{one['ratio']:.3f}", interval
        )
    Console().print(table)
    tensorflow = import_tensorflow().__version__
    document = {
        "tensorflow": tensorflow,
        "machine": platform.processor() or platform.machine(),
        "pairs": arguments.pairs,
        "programs": results,
    }
    write_text(arguments.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
