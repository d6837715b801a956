"""Names of devices: what they list, and what is refused."""

import os
import subprocess
import sys

import pytest
from branching_net import CORES

from gdp.errors import InputError
from gdp.runtime.core_sets import cores_in, cores_of


def test_names_of_devices():
    first = CORES[0]
    assert cores_of(f"cpu:{first}") == (first,)
    assert cores_of(f"cpu:{first}-{first}") == (first,)
    for wrong in (
        "gpu0",
        "cpu",
        "cpu:",
        "cpu:x",
        "cpu:1-",
        "cpu:-1",
        "cuda:",
        "cuda:-1",
        f"cpu:{first},{first}",
        "cpu:99999",
        "cpu:5-2",
        "cpu:0-999999999999",
    ):
        with pytest.raises(InputError):
            cores_of(wrong)


def test_a_name_lists_its_cores_whether_this_process_may_use_them_or_not():
    assert cores_in("cpu:7000") == (7000,)
    assert cores_in("cpu:7003-7005,7000") == (7003, 7004, 7005, 7000)
    for wrong in ("cpu:", "cpu:1-", "gpu:0", "cuda:0"):
        with pytest.raises(InputError, match="is not a device"):
            cores_in(wrong)


def test_names_of_cores_are_read_without_torch():
    reading = "import sys; from gdp.runtime.core_sets import cores_of; cores_of(sys.argv[1]); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", reading, f"cpu:{CORES[0]}"], env=environment, check=True)
