"""Ctrl-C ends a long command soon, whatever its main thread is doing."""

import signal
import subprocess
import sys
import threading

import pytest

from clearway.cli.interrupts import hear_interrupts

DEAF = """
import signal, time
from clearway.cli.session import make_session

with make_session("en").progress("Simulating {policy}", policy="fifo"):
    while True:
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(600)
        except KeyboardInterrupt:
            pass
"""
"""As the compiler is while it optimises."""


def test_an_interrupt_that_the_main_thread_does_not_hear_ends_the_command_as_any_other_does():
    ended = subprocess.run([sys.executable, "-c", DEAF], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_an_interrupt_that_is_heard_is_handled_in_the_usual_way():
    ends = []
    with pytest.raises(KeyboardInterrupt), hear_interrupts(lambda: ends.append(1)):
        signal.raise_signal(signal.SIGINT)
    assert not ends
    assert signal.set_wakeup_fd(-1) == -1, "nobody is told any more"


def test_a_thread_besides_the_main_one_is_let_be():
    done = []

    def work():
        with hear_interrupts(lambda: None):
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
