"""`manage.py bench`: cycles per second over HTTP, beside the floor of the same server, and where the time goes."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from titen.bench import profile, rounds, site
from titen.bench.load import Tally

CLIENTS = (1, 16)
READY = 4000
NAMES = {
    "floor": "floor: 3 x (key look-up, one-row UPDATE)",
    "plain": "claim, heartbeat, complete",
    "wait": "the same, claim with ?wait= at the hub",
    "claim_next": "heartbeat, complete with claim_next",
}
AIMS = {"plain": 1.0, "claim_next": 1.4}
PROFILED = 300


class Command(BaseCommand):
    help = "Measures claim + heartbeat + complete per second in a database of its own; takes two minutes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, default=3.0, help="length of one round")
        parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind, interleaved")

    def handle(self, *args: Any, **options: Any) -> None:
        with site.own_database() as url:
            organization, clients = site.make_clients(max(CLIENTS))

            def refill() -> None:
                site.fill(organization, READY)

            refill()
            with site.serving(site.WEB, url) as web, site.serving(site.HUB, url) as hub:
                single = Tally()
                for count in CLIENTS:
                    tallies = rounds.compare(
                        clients[:count],
                        web=web,
                        hub=hub,
                        seconds=options["seconds"],
                        rounds=options["rounds"],
                        before_round=refill,
                    )
                    self._print_rates(count, tallies)
                    single = tallies["plain"] if count == 1 else single
            refill()
            self._print_profile(single, clients[0].key)

    def _print_rates(self, count: int, tallies: dict[str, Tally]) -> None:
        rates = {kind: tally.cycles / tally.seconds for kind, tally in tallies.items()}
        self.stdout.write(
            f"\n{count} client{'s' if count > 1 else ''}: cycles per second, and times the floor"
        )
        for kind, rate in rates.items():
            aim = f"  (aim: {AIMS[kind]})" if kind in AIMS else ""
            self.stdout.write(f"  {NAMES[kind]:42} {rate:8.0f} {rate / rates['floor']:6.2f}{aim}")

    def _print_profile(self, single: Tally, key: str) -> None:
        """A table of the plain cycle at one client, in microseconds."""

        def cycle() -> None:
            profile.cycle(key)

        whole = single.seconds / single.cycles * 1e6
        client = single.cpu / single.cycles * 1e6
        inside, statements = profile.measure(cycle, PROFILED)
        commit = profile.measure_commit(cycle, PROFILED)
        python = inside - statements
        lines = [
            ("client", client),
            ("HTTP server, sockets, scheduling", max(0.0, whole - client - inside)),
            *((part, python * share) for part, share in profile.shares(cycle, PROFILED).items()),
            ("SQL without the commits", statements - commit),
            ("commits (waiting for the disk)", commit),
        ]
        self.stdout.write(f"\nWhere one cycle's {whole:.0f} µs go (one client, three requests)")
        for name, microseconds in lines:
            self.stdout.write(f"  {name:42} {microseconds:8.0f} {microseconds / whole:6.0%}")
