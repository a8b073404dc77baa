"""Checks real answers against the OpenAPI document."""


def check_answer(method: str, path: str, status: int, body: bytes) -> None:
    """Placeholder until the shapes are written down."""
