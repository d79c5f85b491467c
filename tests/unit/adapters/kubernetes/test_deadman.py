"""A thread that was stopped past its deadline runs no further instruction; one that is in time is left alone."""

import os
import signal
import subprocess
import sys
import time

import pytest

STOPS = """
import os, signal, sys, threading, time
from clearway.adapters.kubernetes.deadman import Deadman

def work():
    deadman = Deadman()
    deadman.set(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(sys.argv[1]) * 1_000_000)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    os.write(1, b"late")
    deadman.close()

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(("deadline_ms", "expected"), [(1, (-signal.SIGALRM, b"")), (600_000, (0, b"late"))])
def test_thread_that_is_stopped_past_its_deadline_does_nothing_more(deadline_ms, expected):
    words = [sys.executable, "-c", STOPS, str(deadline_ms)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        passed_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 20_000_000
        while time.clock_gettime_ns(time.CLOCK_BOOTTIME) < passed_ns:
            os.sched_yield()
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == expected
