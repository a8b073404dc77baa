"""Whom a look wakes: first come first served, one waiter for one task, and no hot loops."""

import time
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest

from titen.live.waiters import ClaimWish, EndWish, Found, LeaseWish, Waiter, Waiting, Wish

pytestmark = pytest.mark.alone

ANY, PYTHON = ClaimWish("a"), ClaimWish("b", ("python",))


class Line:
    """Some waiters, in the order of their wishes."""

    def __init__(self, *wishes: Wish) -> None:
        self.waiting = Waiting()
        self._places = ExitStack()
        self.waiters = [Waiter(wish) for wish in wishes]
        for waiter in self.waiters:
            self.join(waiter)

    def join(self, waiter: Waiter) -> None:
        self._places.enter_context(self.waiting.joined(waiter))

    def wake(self, **ready: list[UUID]) -> list[int]:
        """One look that finds these tasks for `any` and `python`; who was woken, by number."""
        self.waiting.begin_look()
        self.waiting.wake(
            Found({{"any": ANY, "python": PYTHON}[name]: tasks for name, tasks in ready.items()})
        )
        woken = [number for number, waiter in enumerate(self.waiters) if waiter.woken.is_set()]
        for number in woken:
            self.waiters[number].woken.clear()
        return woken

    def settle(self, number: int, *, served: bool) -> None:
        self.waiting.settle(self.waiters[number], served=served)


@pytest.fixture
def tasks() -> list[UUID]:
    return [uuid4() for _ in range(3)]


def test_who_came_first_is_woken_first(tasks: list[UUID]) -> None:
    assert Line(ANY, ANY, ANY).wake(any=tasks[:2]) == [0, 1]


def test_one_task_wakes_one_waiter_whatever_they_wish(tasks: list[UUID]) -> None:
    line = Line(PYTHON, ANY, ANY)
    assert line.wake(any=tasks[:1], python=tasks[:1]) == [0]
    # It is still on its way to the task: nobody else is sent there.
    assert line.wake(any=tasks[:1], python=tasks[:1]) == []


def test_a_task_seen_while_it_was_being_claimed_wakes_nobody(tasks: list[UUID]) -> None:
    line = Line(ANY, ANY)
    assert line.wake(any=tasks[:1]) == [0]
    line.waiting.begin_look()
    line.settle(0, served=True)
    line.waiting.wake(Found({ANY: tasks[:1]}))
    assert not line.waiters[1].woken.is_set()


def test_a_task_that_nobody_gets_is_tried_ever_more_rarely(
    tasks: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    line = Line(ANY, ANY)
    attempts = 0
    for _ in range(100):  # ten seconds
        for number in line.wake(any=tasks[:1]):
            attempts += 1
            line.settle(number, served=False)
        now += 0.1
    assert 5 <= attempts <= 12


def test_another_waiter_gets_its_turn_at_a_task_that_the_first_could_not_have(tasks: list[UUID]) -> None:
    line = Line(ANY, ANY)
    assert line.wake(any=tasks[:1]) == [0]
    line.settle(0, served=False)
    assert line.wake(any=tasks[:1]) == []
    deadline = time.monotonic() + 5
    while not (woken := line.wake(any=tasks[:1])):
        assert time.monotonic() < deadline
    line.settle(woken[0], served=False)
    while not (again := line.wake(any=tasks[:1])):
        assert time.monotonic() < deadline
    assert {*woken, *again} == {0, 1}


def test_a_waiter_that_leaves_gives_its_task_up(tasks: list[UUID]) -> None:
    line = Line(ANY, ANY)
    leaver = Waiter(ANY)
    with line.waiting.joined(leaver):
        assert line.wake(any=tasks) == [0, 1]
        assert leaver.woken.is_set()
    line.settle(0, served=False)
    line.settle(1, served=False)
    line.join(waiter := Waiter(ANY))
    line.waiting.begin_look()
    assert line.waiting.wake(Found({ANY: tasks[2:]})) == 1
    assert waiter.woken.is_set()


def test_a_repeat_is_woken_when_the_first_was_served(tasks: list[UUID]) -> None:
    line = Line(ANY, ANY)
    for waiter in line.waiters:
        waiter.repeats = ("a", "same key")
    assert line.wake(any=tasks[:1]) == [0]
    line.settle(0, served=True)
    assert line.wake() == [1]


def test_all_who_wait_for_a_decision_are_woken_by_it() -> None:
    wish = EndWish(uuid4())
    line = Line(wish, EndWish(uuid4()), wish)
    looking = line.waiting.begin_look()
    assert not looking.claims
    assert len(looking.ends) == 2
    assert line.waiting.wake(Found(ended=frozenset([wish.subject_id]))) == 2


def test_a_look_asks_for_each_wish_once_and_for_nobody_who_rests(tasks: list[UUID]) -> None:
    line = Line(ANY, ANY, PYTHON)
    claims = line.waiting.begin_look().claims
    assert claims == {ANY: 3, PYTHON: 3}
    line.wake(python=tasks[:1])
    line.settle(2, served=False)
    claims = line.waiting.begin_look().claims
    assert list(claims) == [ANY]


def test_nobody_waits_means_nothing_to_look_for() -> None:
    waiting = Waiting()
    assert not waiting.somebody.is_set()
    with waiting.joined(Waiter(ANY)):
        assert waiting.somebody.is_set()
    assert not waiting.somebody.is_set()


ORGANIZATION = uuid4()
RED = LeaseWish("a", (("deploy", "red"),))
RED_TOO = LeaseWish("b", (("deploy", "red"),))
BOTH = LeaseWish("c", (("deploy", "red"), ("deploy", "blue")))


def free(line: Line, *wishes: LeaseWish) -> list[int]:
    """One look that finds what these wish for free; who is on the way to it now, by number."""
    line.waiting.begin_look()
    line.waiting.wake(Found(free=dict.fromkeys(wishes, ORGANIZATION)))
    return [number for number, waiter in enumerate(line.waiters) if waiter.attempting]


def test_a_free_resource_wakes_who_came_first_among_all_who_want_it() -> None:
    line = Line(RED, RED_TOO, BOTH)
    assert free(line, RED, RED_TOO, BOTH) == [0]
    assert free(line, RED_TOO, BOTH) == [0]
    line.settle(0, served=False)
    # The first rests; the resource is somebody else's by now, and then free again.
    assert free(line) == []
    assert free(line, RED_TOO, BOTH) == [1]


def test_who_wants_two_is_woken_when_both_can_be_had_and_keeps_others_from_both() -> None:
    line = Line(BOTH, RED)
    assert free(line, BOTH, RED) == [0]
    line = Line(RED, BOTH)
    assert free(line, RED, BOTH) == [0]
    line.settle(0, served=True)
    assert free(line, BOTH) == [1]


def test_resources_of_two_organizations_are_two_though_they_have_one_name() -> None:
    line = Line(RED, RED_TOO)
    line.waiting.begin_look()
    assert line.waiting.wake(Found(free={RED: ORGANIZATION, RED_TOO: uuid4()})) == 2


def test_a_look_names_the_wishes_for_leases_apart() -> None:
    line = Line(ANY, RED, RED, EndWish(uuid4()))
    looking = line.waiting.begin_look()
    assert looking.leases == [RED]
    assert list(looking.claims) == [ANY]
    assert len(looking.ends) == 1
