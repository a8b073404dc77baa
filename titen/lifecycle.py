"""Named moves of a state machine: one table that code, tests, answers and docs are made from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Transition:
    """`name: sources -> target`. A target of None keeps the state."""

    name: str
    sources: frozenset[str]
    target: str | None

    def allows(self, state: str) -> bool:
        """True when the move may start in `state`."""
        return state in self.sources


class Machine:
    """The moves of one kind of object, by name."""

    def __init__(
        self, noun: str, states: Iterable[str], moves: Mapping[str, tuple[Iterable[str], str | None]]
    ) -> None:
        self.noun = noun
        self.states = frozenset(states)
        self.moves = {
            name: Transition(name, frozenset(sources), target) for name, (sources, target) in moves.items()
        }
        for move in self.moves.values():
            unknown = (move.sources | ({move.target} - {None})) - self.states
            if unknown:
                raise ValueError(f"{noun} move {move.name} names unknown states: {sorted(map(str, unknown))}")

    def __getitem__(self, name: str) -> Transition:
        return self.moves[name]

    def sources(self, name: str) -> list[str]:
        """The states in which `name` may start, for a conditional UPDATE."""
        return sorted(self.moves[name].sources)

    def allowed_in(self, state: str) -> list[str]:
        """The names of the moves that may start in `state`, for a 409's details."""
        return sorted(name for name, move in self.moves.items() if move.allows(state))
