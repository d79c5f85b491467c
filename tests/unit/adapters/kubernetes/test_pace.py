"""Calls on their way: bounded, in order, fewer after a refusal, more again after answers."""

import asyncio

import pytest

from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.pace import FIRST, Pace


async def call(pace, error=None):
    async with pace:
        if error is not None:
            raise error


async def gather(pace, *errors):
    """Calls that are all on their way before the first is answered."""
    inside, answer = [], asyncio.Event()

    async def one(error):
        async with pace:
            inside.append(error)
            await answer.wait()
            if error is not None:
                raise error

    tasks = [asyncio.create_task(one(error)) for error in errors]
    for _ in range(3):
        await asyncio.sleep(0)
    count = len(inside)
    answer.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(inside) == len(errors)
    return count


def test_no_more_calls_than_the_bound_are_on_their_way_and_none_is_forgotten():
    assert asyncio.run(gather(Pace(3), *[None] * 10)) == 3


def test_server_that_says_to_come_back_is_called_half_as_much_once_for_all_that_were_on_their_way():
    async def run():
        pace = Pace(FIRST)
        await gather(pace, *[UnreachableError("429")] * FIRST)
        return pace.limit

    assert asyncio.run(run()) == FIRST // 2


def test_server_that_answers_is_called_twice_as_much_after_each_round():
    async def run():
        pace = Pace(4 * FIRST)
        await gather(pace, *[None] * FIRST)
        return pace.limit

    assert asyncio.run(run()) == 2 * FIRST


def test_answers_bring_the_pace_back_up_to_its_bound():
    async def run():
        pace = Pace(FIRST)
        await gather(pace, *[UnreachableError("429")] * FIRST)
        for _ in range(FIRST**2):
            await call(pace)
        return pace.limit

    assert asyncio.run(run()) == FIRST


def test_refusal_for_good_is_an_answer_and_slows_nothing():
    async def run():
        pace = Pace(FIRST)
        with pytest.raises(ApiError):
            await call(pace, ApiError(409, "Conflict", "bound"))
        return pace.limit

    assert asyncio.run(run()) == FIRST


def test_one_call_at_a_time_is_left_however_often_the_server_refuses():
    async def run():
        pace = Pace(FIRST)
        for _ in range(20):
            with pytest.raises(UnreachableError):
                await call(pace, UnreachableError("503"))
        return pace.limit

    assert asyncio.run(run()) == 1


def test_call_that_is_cancelled_while_it_waits_lets_the_next_one_go():
    async def run():
        pace, answer = Pace(1), asyncio.Event()

        async def hold():
            async with pace:
                await answer.wait()

        first, second, third = (asyncio.create_task(hold()) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        answer.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        return second.cancelled(), third.done()

    assert asyncio.run(run()) == (True, True)
