"""Numbers of calls: each is handed out once, and looking at the next one takes none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kernelscope.store.flight.numbers import PlainNumbers


def test_threads_get_different_numbers() -> None:
    numbers = PlainNumbers(8, 64, 32)
    with ThreadPoolExecutor(4) as pool:
        taken = [n for part in pool.map(lambda _: [numbers()[0] for _ in range(500)], range(4)) for n in part]
    assert sorted(taken) == list(range(1, 2001))
    assert numbers.next == 2001


def test_the_next_number_can_be_read_again_and_again() -> None:
    numbers = PlainNumbers(8, 64, 32)
    assert [numbers.next, numbers.next] == [1, 1]
    assert numbers.take(9) == 1
    assert [numbers.next, numbers.next] == [10, 10]
    assert numbers() == (10, 64 + 1 * 32)  # the ring has eight cells: the tenth call is in the second
