"""Names of CPU devices: sets of cores."""


def cores_in(name: str) -> tuple[int, ...]:
    """The cores that `name` lists: `cpu:0`, `cpu:0-3`, `cpu:0,2`. Names of any other form have been refused before (`gdp.runtime.executor.cores_of`)."""
    cores: list[int] = []
    for part in name.removeprefix("cpu:").split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)
