"""The demo's policy, as data: what its tools do to the world, and what needs no question."""

from approvals.models import Decision, Kind, Risk
from approvals.policy_terms import RuleTerms, ToolTerms

TOOLS = (
    ToolTerms(Kind.DESTRUCTIVE, tool="delete*"),
    ToolTerms(Kind.OUTWARD, tool="deploy"),
    ToolTerms(Kind.OUTWARD, tool="publish"),
    ToolTerms(Kind.OUTWARD, tool="upload"),
    ToolTerms(Kind.OTHER, tool="label", server="files"),
)
# What no rule matches is asked about when it is destructive or outward: the organization's flags say so.
RULES = (
    RuleTerms(
        Decision.DENY, rank=100, tool="delete*", server="production", note="Nothing of production is deleted."
    ),
    RuleTerms(
        Decision.ASK, rank=10, tool="deploy", risk=Risk.HIGH, note="Customers notice a deployment at once."
    ),
    RuleTerms(
        Decision.ALLOW,
        tool="publish",
        server="docs-site",
        capability="docs",
        note="The docs site keeps every version.",
    ),
    RuleTerms(
        Decision.ALLOW,
        tool="upload",
        server="mirror",
        capability="static",
        note="The mirror holds nothing but copies.",
    ),
)
