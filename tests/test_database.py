"""Statements of the hot path are planned once for each connection."""

import pytest
from django.db import connection

from coordination.database import fetch, fetch_all

pytestmark = pytest.mark.usefixtures("database")


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [row[0] for row in cursor.fetchall()]


def test_a_statement_is_prepared_on_the_server_unless_it_says_otherwise() -> None:
    fetch("SELECT 41 AS prepared", {})
    fetch("SELECT 42 AS planned_each_time", {}, prepare=False)
    assert [text for text in prepared() if text.startswith("SELECT 4")] == ["SELECT 41 AS prepared"]


def test_djangos_own_statements_are_not_prepared() -> None:
    before = len(prepared())
    for _ in range(10):
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s AS djangos", ["x"])
    assert len(prepared()) == before


def test_a_name_may_stand_twice_and_a_percent_sign_for_itself() -> None:
    row = fetch("SELECT %(a)s::int + %(a)s::int + %(b)s::int AS sum, '%%s' AS sign", {"b": 1, "a": 2, "c": 3})
    assert row == {"sum": 5, "sign": "%s"}


def test_json_is_read() -> None:
    assert fetch_all("SELECT %(data)s::jsonb AS data", {"data": '{"a": [1]}'}) == [{"data": {"a": [1]}}]
