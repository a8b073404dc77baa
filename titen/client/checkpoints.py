"""Checkpoints, which an agent keeps about a subject, and packs of them for others to read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from .connection import Connection, id_of
from .shapes import Checkpoint, CheckpointVersion, ContextPack
from .transport import given

KIND = "work"
_TYPES = {"task": "task", "run": "run", "ckpt": "checkpoint", "cmt": "comment"}


class CheckpointCalls(Connection):
    """What an agent keeps on a server. About its task a run says it itself: `Run.checkpoint`."""

    def checkpoint(
        self,
        subject_id: str,
        state: Any,
        *,
        kind: str = KIND,
        expected_version: int | None = None,
        expires_in_seconds: int | None = None,
    ) -> Checkpoint:
        """Write the next version of this agent's checkpoint about a subject. `state` is JSON. About a task only
        its holder writes, by `Run.checkpoint`; for anybody else its id as the subject raises `NotHolder`.

        expected_version: write only on top of this one, 0: only if there is none. Else `VersionMismatch`,
        whose `details` have `current_version` and its `state_hash`.
        """
        return cast(
            Checkpoint,
            self.post(
                "/v1/checkpoints",
                {
                    "subject_id": subject_id,
                    "state": state,
                    "kind": kind,
                    **given(expected_version=expected_version, expires_in_seconds=expires_in_seconds),
                },
            ),
        )

    def checkpoints(
        self,
        *,
        subject_id: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        task: str | None = None,
    ) -> Iterator[Checkpoint]:
        """Those that this agent may read, by subject, kind, or the ids of author or task; without states."""
        return self._each(
            "/v1/checkpoints", "checkpoints", subject_id=subject_id, kind=kind, agent=agent, task=task
        )

    def read_checkpoint(self, checkpoint: Checkpoint | str, *, version: int | None = None) -> Checkpoint:
        """One with its `state`: in its newest version, or an earlier one."""
        return cast(Checkpoint, self.get(_path(checkpoint), version=version))

    def checkpoint_history(self, checkpoint: Checkpoint | str) -> Iterator[CheckpointVersion]:
        """The versions that are still kept, newest first, without their states."""
        return self._each(f"{_path(checkpoint)}/history", "versions")

    def context_pack(
        self,
        items: Sequence[str | Checkpoint],
        *,
        subject_id: str | None = None,
        task_id: str | None = None,
        note: str = "",
    ) -> ContextPack:
        """Pin what others should read: ids of tasks, runs, comments and checkpoints.

        A checkpoint is pinned in the version that it has now, or that was read or written where that
        answer is given in place of the id. Each reader sees what it may read by itself.
        """
        body = given(subject_id=subject_id, task_id=task_id, note=note)
        body["items"] = [_item(item) for item in items]
        return cast(ContextPack, self.post("/v1/contexts", body))

    def read_context(self, pack: ContextPack | str) -> ContextPack:
        """A pack with the `content` of each item, as far as this agent may read it."""
        return cast(ContextPack, self.get(f"/v1/contexts/{id_of(pack, 'context_id')}"))


def _path(checkpoint: Mapping[str, Any] | str) -> str:
    return f"/v1/checkpoints/{id_of(checkpoint, 'checkpoint_id')}"


def _item(item: str | Checkpoint) -> dict[str, Any]:
    if not isinstance(item, str):
        return {"type": "checkpoint", "id": item["checkpoint_id"], "version": item["version"]}
    kind = _TYPES.get(item.partition("_")[0])
    if kind is None:
        raise ValueError(f"an item is the id of a task, run, comment or checkpoint, not {item!r}")
    return {"type": kind, "id": item}
