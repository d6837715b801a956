"""How far two runs of one program may differ though both are right, by the name of the dtype."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2, "complex64": 1e-3, "complex128": 1e-9}
"""Largest difference allowed, relative to the largest magnitude of the array: room for other summation orders and TF32, none for a wrong cut."""

ROUNDING = {"float64": 1e-15, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2, "complex64": 1e-6, "complex128": 1e-15}
"""Relative size of a rounding error, or a few."""

MULTIPLE_OF_ROUNDING = 10.0
"""How many times as far as a run on values that were changed by roundings a result may lie from the reference."""
