"""What a knob of learning may be: a number outside is refused when the configuration is read, before anything is allocated or taught."""

from collections.abc import Iterable

from gdp.errors import InputError

MAX_SAMPLES = 2**16
"""The most placements, tasks, passes or rows that are held in memory at a time."""
MAX_EVALUATIONS = 2**24
"""The most placements that a search tries."""
MAX_STEPS = 10**7
"""The most steps, updates or tasks of a run."""
MAX_OPS = 10**7
"""The most ops of a synthetic graph."""
MAX_THREADS = 1024
"""The most threads or processes at work."""
MAX_LEARNING_RATE = 1.0
"""Adam moves every weight by about the rate in each step."""
MAX_LOSS_WEIGHT = 1000.0
"""Of a term of the loss, beside the first with weight 1."""
MAX_TEMPERATURE = 1000.0
"""Of sampling; one over it is the least."""


def check_counts(section: str, counts: Iterable[tuple[str, int, int, int]]) -> None:
    """Raises `InputError` for the first name whose value is not between its least and its most; each is (name, value, least, most)."""
    for name, value, least, most in counts:
        if value < least:
            raise InputError(f"{section}.{name} is {value}; it must be at least {least}")
        if value > most:
            raise InputError(f"{section}.{name} is {value}; it must be at most {most}")


def check_learning_rate(name: str, rate: float) -> None:
    """Raises `InputError` for one that is not positive, or above `MAX_LEARNING_RATE`."""
    if not 0 < rate <= MAX_LEARNING_RATE:
        raise InputError(f"{name} is {rate}; it must be above 0 and at most {MAX_LEARNING_RATE:g}")
