"""`manage.py up` and the embedded servers, with real processes."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from titen import embedded
from titen.supervisor import postgres, services
from titen.supervisor.child import describe_exit
from titen.supervisor.guard import Guard
from titen.supervisor.state import State

from .processes import Up, eventually, own_environment
from .servers import REPOSITORY, free_port

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `up` for the tests that leave it running. Its path has a space, as a path may."""
    with Up(tmp_path_factory.mktemp("up") / "a state folder") as running:
        yield running
    assert running.left_over() == []


@pytest.fixture
def without_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)


def _run_up(var: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "up", *options],
        cwd=REPOSITORY,
        env=own_environment(TITEN_VAR=str(var), **environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["web", "express", "hub", "worker", "beat", "front", "valkey", "postgres"])
def test_what_is_killed_is_started_again_and_said(up: Up, name: str) -> None:
    before = up.kill(name)
    eventually(lambda: f"{name} exited with 137 (killed); starting again in 0.2 s" in up.words, within=5)
    eventually(lambda: up.pid(name) not in {None, before})
    eventually(lambda: up.get("/readyz")[0] == 200)


def test_secrets_are_made_once_and_closed_to_others(up: Up) -> None:
    path = up.var / "environment"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    state = State(up.var)
    before = state.environment()
    assert {"TITEN_SECRET_KEY", "DATABASE_URL", "CELERY_BROKER_URL"} <= before.keys()
    state.keep({})
    assert state.environment() == before


def test_a_second_up_on_the_same_folder_says_so(up: Up) -> None:
    second = _run_up(up.var, "--port", str(free_port()))
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f"Titen already runs from {up.var}: {up.address}" in second.stderr


def test_a_taken_port_is_one_sentence(up: Up, tmp_path: Path) -> None:
    second = _run_up(tmp_path / "var", "--port", str(up.port))
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f"Port {up.port} of 127.0.0.1 can't be used" in second.stderr


def test_an_unreachable_database_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://someone:secret@127.0.0.1:{free_port()}/titen"
    ended = _run_up(tmp_path / "var", "--port", str(free_port()), DATABASE_URL=url)
    assert ended.returncode == 1
    assert "DATABASE_URL (postgresql://127.0.0.1" in ended.stderr
    assert "secret" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_stops_what_it_started_and_the_data_stays(up: Up) -> None:
    with psycopg.connect(postgres.url(up.var / "postgres")) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")
    assert up.stop(signal.SIGINT) == 0
    assert up.left_over() == []
    assert "killing it" not in up.words
    up.start()
    with psycopg.connect(postgres.url(up.var / "postgres")) as connection:
        assert connection.execute("TABLE kept").fetchall() == [(1,)]
        connection.execute("DROP TABLE kept")


def test_killed_it_leaves_nothing_behind_and_the_next_one_waits_for_that(up: Up) -> None:
    before = {name: up.pid(name) for name in ("web", "postgres", "valkey", "front")}
    up.process.kill()
    up.process.wait()
    up.start()
    assert up.get("/readyz")[0] == 200
    assert not any(pid and psutil.pid_exists(pid) for pid in before.values())


def test_the_front_answers_in_the_envelope_while_nothing_is_behind_it(tmp_path: Path) -> None:
    state = State.open(tmp_path / "var")
    up = Up(state.var)
    program = services.front(state, up.port)
    process = subprocess.Popen(program.argv, cwd=program.folder, env={**os.environ, **program.environment})
    try:
        answers = eventually(lambda: [answer for answer in [up.get("/v1/tasks")] if answer[0]])
        status, body = answers[0]
        assert status == 503
        assert json.loads(body)["error"]["code"] == "OVERLOADED"
        assert json.loads(body)["error"]["details"] == {"retry_after": 1}
        assert len(json.loads(body)["meta"]["request_id"]) == 36
        status, body = up.get("/api/v1/documents/handbook/sections/intro/lease")
        assert (status, json.loads(body)["error"]) == (503, "OVERLOADED")
        assert "{" not in up.get("/")[1]
    finally:
        process.terminate()
        process.wait()


def test_the_database_runs_while_a_command_needs_it(tmp_path: Path, without_servers: None) -> None:
    """The second user keeps the first one's server alive, and nobody leaves one running."""
    data = tmp_path / "var" / "postgres"
    second_in, second_may_end = threading.Event(), threading.Event()

    def second() -> None:
        with embedded.running_database(tmp_path / "var") as url:
            second_in.set()
            second_may_end.wait(20)
            with psycopg.connect(url) as connection:
                answers.append(connection.execute("SELECT 1").fetchone())

    answers: list[object] = []
    thread = threading.Thread(target=second)
    with embedded.running_database(tmp_path / "var"):
        thread.start()
        assert second_in.wait(20)
        threading.Timer(0.5, second_may_end.set).start()
    thread.join()
    assert answers == [(1,)]
    assert not postgres.answers(data)


def test_a_stale_pid_file_that_names_a_living_process_does_not_stop_the_database(tmp_path: Path) -> None:
    with embedded.start_postgres(tmp_path):
        pass
    (tmp_path / "postgres" / "postmaster.pid").write_text(
        f"{os.getpid()}\n{tmp_path}/postgres\n0\n5432\n\n\n0 0\n"
    )
    with embedded.start_postgres(tmp_path) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("titen",)


def test_sockets_find_a_short_place_when_the_folder_is_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with embedded.start_postgres(deep) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with embedded.start_valkey(deep) as broker:
        assert "titen-" in broker


def test_the_guard_stops_what_a_killed_parent_left() -> None:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    guard = Guard()
    guard.watch(child.pid, signal.SIGTERM)
    closing = threading.Thread(target=guard.close)
    closing.start()
    assert child.wait(timeout=5) == -signal.SIGTERM
    closing.join(timeout=5)
    assert not closing.is_alive()


@pytest.mark.parametrize(
    ("status", "words"), [(0, "0"), (3, "3"), (-9, "137 (killed)"), (-15, "143 (terminated)")]
)
def test_exits_are_said_as_a_shell_says_them(status: int, words: str) -> None:
    assert describe_exit(status) == words
