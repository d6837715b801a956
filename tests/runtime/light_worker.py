"""A worker that is there at once, because it loads no framework: `python -m light_worker FOLDER FD`. A step of its program is a millisecond's sleep, or a fault."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faults import Injector

from gdp.runtime.serving import answer, serve, step_times
from gdp.runtime.timing import Protocol


def main() -> None:
    """Serves."""
    injector = Injector(Path(sys.argv[1]))

    def step() -> float:
        begin = time.perf_counter()
        injector.step()
        time.sleep(0.001)
        return time.perf_counter() - begin

    def measure(*, devices: list[str], candidate: list[int], incumbent: list[int] | None, protocol: dict[str, Any]) -> dict[str, Any]:
        candidate_s, incumbent_s = step_times(step, None if incumbent is None else step, Protocol(**protocol))
        return {
            "candidate_s": candidate_s,
            "incumbent_s": incumbent_s,
            "busy_s": [0.001] * len(devices),
            "peak_memory_bytes": [0] * len(devices),
        }

    def load(*, ops: list[str]) -> dict[str, Any]:
        return {"ok": True}

    def answered(request: Mapping[str, Any]) -> dict[str, Any]:
        return answer({"load": load, "measure": measure}, request, lacks_memory=lambda error: isinstance(error, MemoryError))[0]

    serve(sys.argv[1:], answered)


if __name__ == "__main__":
    main()
