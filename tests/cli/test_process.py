"""How a process ends when it is asked to."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background has it ignored
from gdp.cli.process import end_with, stop_signal
def run():
    try:
        {body}
    finally:
        print("cleaned up \\u2026")
    return 0
end_with(run)
"""
WAIT = "print('ready', flush=True); time.sleep(30)"
ASKED = """
        with stop_signal() as stop:
            print('ready', flush=True)
            while not stop():
                time.sleep(0.01)
            print('asked', flush=True)
            time.sleep(30)
"""


def _start(body: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_process_quietly_after_it_cleaned_up(number: signal.Signals, code: int) -> None:
    child = _start(WAIT)
    child.send_signal(number)
    out, err = child.communicate()
    assert (child.returncode, out, err) == (code, "cleaned up ?\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks_a_run_to_stop_and_the_second_ends_it(number: signal.Signals, code: int) -> None:
    child = _start(ASKED)
    child.send_signal(number)
    assert child.stdout is not None and child.stdout.readline() == "asked\n"
    child.send_signal(number)
    out, err = child.communicate()
    assert (child.returncode, out) == (code, "cleaned up ?\n")
    assert err == "stopping after this update or comparison; once more to stop at once\n"


def test_a_reader_that_has_gone_ends_the_process_quietly() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body="[print(number) for number in range(100_000)]")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    assert child.stdout is not None and child.stderr is not None and child.stdout.readline() == "0\n"
    child.stdout.close()
    assert child.wait(30) == 128 + signal.SIGPIPE
    assert child.stderr.read() == ""
    child.stderr.close()
