"""Messages between the agents."""

from titen.client import Titen


def answer_messages(titen: Titen, resource: tuple[str, str], answer: str) -> None:
    """Read what the holder of the resource was asked, and answer everybody with the one thing there is to say."""
    for message in titen.messages(unread=True):
        about = message["resource"] or {}
        if (about.get("resource_type"), about.get("resource_id")) == resource:
            titen.send(answer, to=message["from_principal"])
            titen.mark_read(message)


def read_messages(titen: Titen) -> list[str]:
    """Read what was written, oldest first: `scribe: In quality.md.`"""
    unread = reversed(list(titen.messages(unread=True)))
    return [f"{titen.mark_read(message)['from_name']}: {message['body']}" for message in unread]
