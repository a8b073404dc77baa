"""How the hub hands on what a look has found: to whom, once, without a gap, and without a copy for each."""

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from coordination.following import Log, Page
from titen.api.event_stream import Opening
from titen.live import followers
from titen.live.followers import Follower, Following
from titen.live.news import News

LOG = Log("organization", uuid.uuid4())


@dataclass(frozen=True)
class StubFeed:
    """Shows a line as its position, whole or cut; only even ones where `even`."""

    cuts: str = "whole"
    even: bool = False
    made: Counter[tuple[int, str]] = field(default_factory=Counter, compare=False)

    @property
    def log(self) -> Log:
        return LOG

    def read(self, after: int | None) -> Page:
        raise AssertionError("followers do not read by themselves here")

    def cut(self, row: Any) -> str | None:
        return None if self.even and row["position"] % 2 else self.cuts

    def message(self, row: Any, cut: str) -> bytes:
        self.made[row["position"], cut] += 1
        return f"{row['position']} ".encode()

    def place(self, position: int) -> bytes:
        return f"at {position} ".encode()

    def resync(self, page: Page) -> bytes:
        return b"resync "

    def closed(self, code: str) -> bytes:
        return b"closed "


@dataclass
class Caller:
    organization_id = LOG.id
    principal_id = key_id = LOG.id
    user_id = None


def follower(position: int, feed: StubFeed | None = None) -> Follower:
    return Follower(Opening(feed or StubFeed(), position, cast(Any, Caller()), ""))


def news(asked: int, *positions: int) -> News:
    return News({LOG: asked}, {LOG: [{"position": position} for position in positions]})


def page(start: int, newest: int, *positions: int) -> Page:
    rows = [{"position": position} for position in positions]
    return Page(rows, start, newest, 0, newest, missed=False)


def test_whoever_has_read_everything_is_handed_what_is_new() -> None:
    following, one = Following(), follower(5)
    assert not following.somebody.is_set()
    assert following.admit(one)
    assert following.begin_look() == {LOG: 5}
    following.publish(news(5, 6, 7))
    assert one.take() == b"6 7 "
    assert following.begin_look() == {LOG: 7}
    following.leave(one)
    assert following.begin_look() == {}
    assert not following.somebody.is_set()


def test_whoever_stands_behind_the_tail_reads_on_by_itself_first() -> None:
    following, one, late = Following(), follower(5), follower(5)
    following.admit(one)
    following.publish(news(5, 6))
    assert not following.admit(late)
    assert late.page(page(5, 6, 6)) == b"6 "
    assert following.admit(late)
    following.publish(news(6, 7))
    assert late.take() == b"7 "


def test_whoever_stands_before_the_tail_gets_nothing_twice() -> None:
    following, one, early = Following(), follower(5), follower(7)
    following.admit(one)
    assert following.admit(early)
    following.publish(news(5, 6, 7, 8))
    assert (one.take(), early.take()) == (b"6 7 8 ", b"8 ")


def test_a_look_that_was_asked_before_the_log_was_followed_anew_is_not_handed_on() -> None:
    """It begins behind lines that the new follower has not seen."""
    following, one, new = Following(), follower(9), follower(7)
    following.admit(one)
    following.leave(one)
    following.admit(new)
    following.publish(news(9, 10, 11))
    assert new.take() == b""
    following.publish(news(7, 8, 9, 10, 11))
    assert new.take() == b"8 9 10 11 "


def test_whoever_leaves_too_much_unread_reads_it_again_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "QUEUE_BYTES", 8)
    following, slow, quick = Following(), follower(0), follower(0)
    following.admit(slow)
    following.admit(quick)
    for number in (1, 2, 3, 4):
        following.publish(news(number - 1, number))
        assert quick.take() == f"{number} ".encode()
    assert slow.live
    following.publish(news(4, 5))
    assert not slow.live
    assert slow.ready.is_set()
    assert (slow.position, slow.take()) == (0, b"")
    assert slow.page(page(0, 5, 1, 2, 3, 4, 5)) == b"1 2 3 4 5 "
    assert following.admit(slow)


def test_a_line_is_made_once_for_each_way_in_which_it_is_shown() -> None:
    made: Counter[tuple[int, str]] = Counter()
    following = Following()
    crowd = [
        follower(0, StubFeed(cuts, even, made))
        for cuts in ("whole", "without actor")
        for even in (False, True)
        for _ in range(50)
    ]
    for one in crowd:
        following.admit(one)
    following.publish(news(0, 1, 2, 3))
    assert Counter(one.take() for one in crowd) == {b"1 2 3 ": 100, b"2 ": 100}
    assert set(made.values()) == {1}
    assert len(made) == 6


def test_a_silent_follower_is_told_its_place_by_the_ping_and_after_a_thousand_positions() -> None:
    following, one = Following(), follower(0, StubFeed(even=True))
    following.admit(one)
    following.publish(news(0, 1))
    assert one.take() == b""
    one.ping()
    assert one.take() == b"at 1 "
    one.ping()
    assert one.take() == followers.PING
    following.publish(news(1, 1001))
    assert one.take() == b"at 1001 "
    following.publish(news(1001, 1002, 1003))
    assert one.take() == b"1002 "
    one.ping()
    assert one.take() == b"at 1003 "


def test_a_page_that_passes_many_lines_over_says_where_it_ends() -> None:
    one = follower(0, StubFeed(even=True))
    assert one.page(page(0, 5000)) == b"at 5000 "
    assert one.page(page(5000, 5002, 5001, 5002)) == b"5002 "
