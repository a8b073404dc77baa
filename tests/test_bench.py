"""The bench runs, and prints every kind of cycle beside the floor."""

import re
import subprocess
import sys

import pytest

from .servers import REPOSITORY

pytestmark = pytest.mark.alone


@pytest.mark.usefixtures("database")
def test_the_bench_prints_rates_ratios_and_where_the_time_goes() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", "--seconds", "0.3", "--rounds", "1"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for count in ("1 client:", "16 clients:"):
        table = done.stdout.partition(count)[2].split("\n")[1:5]
        assert all(re.search(r" \d+ +\d+\.\d\d\b", line) for line in table), done.stdout
    for part in ("client", "Django REST framework", "SQL without the commits", "commits"):
        assert re.search(rf"  {part}.* \d+ +\d+%", done.stdout), done.stdout
