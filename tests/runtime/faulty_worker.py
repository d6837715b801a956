"""The worker of PyTorch programs, with faults: `python -m faulty_worker FOLDER FD`. They come in the thread of a device, at the start of a step."""

import sys
from pathlib import Path

from faults import Injector

from gdp.runtime.executor import Executor, _Result
from gdp.runtime.serving import serve
from gdp.runtime.stages import Loaded
from gdp.runtime.worker import Bench


def main() -> None:
    """Serves."""
    injector, honest = Injector(Path(sys.argv[1])), Executor._run

    def run(self: Executor, number: int, loaded: Loaded) -> _Result:
        if number == 0:
            injector.step()
        return honest(self, number, loaded)

    Executor._run = run  # type: ignore[method-assign]
    serve(sys.argv[1:], Bench().answer)


if __name__ == "__main__":
    main()
