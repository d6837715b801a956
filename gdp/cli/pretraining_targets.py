"""The search for what imitation imitates, in processes of its own: every core searches, and what was found stays when the run is killed."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from gdp.cli.pretraining_tasks import pretraining_source
from gdp.cli.run_folder import TARGETS
from gdp.cli.train_config import TrainConfig
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.learn.targets import Targets

_own: Targets | None = None
"""Of a worker process."""


def open_targets(settings: TrainConfig, cluster: Cluster | None) -> Targets:
    """The targets of a run, in its folder."""
    return Targets(
        settings.run_dir / TARGETS,
        pretraining_source(settings, cluster),
        evaluations=settings.imitation.search_evaluations,
        objective=settings.reward.objective,
        seed=settings.seed,
    )


def search_targets(
    settings: TrainConfig, cluster: Cluster | None, missing: Sequence[int], *, stopped: Callable[[], int], advance: Callable[[int], None]
) -> None:
    """Searches the tasks of these numbers; `advance` hears how many are done. Ends early, with what is in hand finished, when `stopped`."""
    with ProcessPoolExecutor(
        max_workers=min(settings.num_threads, len(missing)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_open,
        initargs=(settings, cluster),
    ) as pool:
        futures = [pool.submit(_search, number) for number in missing]
        for done, future in enumerate(as_completed(futures), start=1):
            try:
                future.result()
            except BrokenProcessPool as error:
                raise InputError(
                    "a process that searched for placements was ended from outside, for want of memory perhaps; "
                    f"start again with num_threads below {settings.num_threads}: what was found stays"
                ) from error
            advance(done)
            if stopped():
                pool.shutdown(wait=True, cancel_futures=True)
                break


def _open(settings: TrainConfig, cluster: Cluster | None) -> None:
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _own = open_targets(settings, cluster)


def _search(number: int) -> None:
    assert _own is not None
    _own.search(number)
