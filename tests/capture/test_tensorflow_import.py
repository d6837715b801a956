import os
import subprocess
import sys

import pytest

PROGRAM = """
from gdp.capture.tensorflow_import import import_tensorflow
tf = import_tensorflow()
import os
assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
assert float(tf.constant(1.0) + 1.0) == 2.0
assert import_tensorflow() is tf
"""


@pytest.mark.tensorflow
def test_import_and_first_op_say_nothing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TF_FORCE_GPU_ALLOW_GROWTH"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_tensorflow_the_error_says_how_to_install_it() -> None:
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tensorflow':\n"
        "            raise ModuleNotFoundError('absent', name='tensorflow')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from gdp.capture.tensorflow_import import import_tensorflow\n"
        "import_tensorflow()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "InputError: TensorFlow is not installed; install it with `pip install 'gdp[tensorflow]'`" in done.stderr
