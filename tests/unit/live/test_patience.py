"""Lists do not wait for decisions that take long."""

from threading import Event, RLock, Thread

from clearway.live.patience import held_soon


def test_a_lock_that_is_free_is_held_and_given_back():
    lock = RLock()
    with held_soon(lock) as is_held:
        assert is_held
    found = []
    other = Thread(target=lambda: found.append(lock.acquire(blocking=False)))
    other.start()
    other.join()
    assert found == [True]


def test_a_lock_that_somebody_keeps_is_not_waited_for():
    lock, is_kept, may_end = RLock(), Event(), Event()

    def keep():
        with lock:
            is_kept.set()
            may_end.wait(10)

    other = Thread(target=keep)
    other.start()
    is_kept.wait(10)
    try:
        with held_soon(lock, 0.001) as is_held:
            assert not is_held
    finally:
        may_end.set()
        other.join()
