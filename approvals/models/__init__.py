"""The tables of approvals, a file per aggregate."""

from .approvals import DECIDED, Approval, ApprovalStatus, Vote
from .effects import Effect, EffectReport, EffectStatus
from .policy import Decision, Kind, PolicyRule, Risk, ToolEntry

__all__ = [
    "DECIDED",
    "Approval",
    "ApprovalStatus",
    "Decision",
    "Effect",
    "EffectReport",
    "EffectStatus",
    "Kind",
    "PolicyRule",
    "Risk",
    "ToolEntry",
    "Vote",
]
