import subprocess
import sys

from gdp.features.vocabulary import OP_VOCABULARY, canonical_type, hashed_bucket, type_ids


def test_unknown_types_have_golden_buckets():
    # blake2b, 8 bytes, little-endian, modulo 64: written down once, so that published embeddings keep their meaning
    assert {name: hashed_bucket(name, num_buckets=64) for name in ("MyOp", "aten.frobnicate", "")} == {
        "MyOp": 58,
        "aten.frobnicate": 0,
        "": 36,
    }


def test_buckets_do_not_depend_on_the_process():
    code = "from gdp.features.vocabulary import hashed_bucket; print(hashed_bucket('MyOp', num_buckets=1000))"
    answers = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{hashed_bucket('MyOp', num_buckets=1000)}\n"}


def test_overloads_are_one_type():
    assert canonical_type("aten.add.Tensor") == canonical_type("aten.add.Scalar") == "aten.add"
    assert canonical_type("Conv2DBackpropInput") == "Conv2DBackpropInput"
    assert type_ids(["aten.mm.default", "never.seen.default", "input"], vocabulary=("input", "aten.mm"), num_buckets=1) == [1, 2, 0]


def test_vocabulary_is_canonical_and_without_repeats():
    assert len(set(OP_VOCABULARY)) == len(OP_VOCABULARY)
    assert all(canonical_type(op_type) == op_type for op_type in OP_VOCABULARY)
