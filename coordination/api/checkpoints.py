"""`/v1/checkpoints`: what agents keep, version by version."""

import re
from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import checkpoints
from coordination.models import Checkpoint, CheckpointVersion
from coordination.reading import readable_checkpoints
from coordination.shapes import checkpoint_json, version_json
from coordination.times import stamp
from titen.api.answers import integer
from titen.api.fields import INT_MAX, Integer, Json, Line, Moment, StrictSerializer, Text
from titen.api.ids import field_id, path_id
from titen.api.schema import ok, query_parameters
from titen.api.views import ApiView
from titen.errors import invalid

from .bodies import EPOCH_MAX
from .paging import IdFilter, LineFilter, list_parameters, page

VERSION = re.compile(r'"([0-9]{1,10})"')
IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": '^"[0-9]{1,10}"$'},
    OpenApiParameter.HEADER,
    description='The same as `expected_version`, as an ETag gives it: `"3"`.',
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    {"type": "string", "enum": ["*"]},
    OpenApiParameter.HEADER,
    description="`*` is the same as `expected_version` 0.",
)
ETAG = "The answer's `ETag` is the version, in quotes."


def subject(**options: Any) -> Line:
    """What a checkpoint or a pack is about: any name, or an id."""
    return Line(max_length=200, **options)


class CheckpointBody(StrictSerializer):
    """`POST /v1/checkpoints`; with `run_id` and `epoch` the holder's word about its task."""

    subject_id = subject(required=False)
    kind = Line(required=False, max_length=80)
    state = Json(allow_null=True)
    expected_version = Integer(required=False, min_value=0)
    run_id = Text(required=False, max_length=60)
    epoch = Integer(required=False, min_value=1, max_value=EPOCH_MAX)
    expires_at = Moment(required=False)
    expires_in_seconds = Integer(required=False)


class VersionQuery(StrictSerializer):
    """`?version=`: a whole number from 1."""

    version = serializers.RegexField(
        r"^[1-9][0-9]{0,9}\Z",
        required=False,
        trim_whitespace=False,
        error_messages={"invalid": "must be a version such as 3."},
    )


class CheckpointFilter(django_filters.FilterSet):
    """Exact matches."""

    subject_id = LineFilter(max_length=200)
    kind = LineFilter(max_length=80)
    agent = IdFilter("agent", field_name="principal_id")
    task = IdFilter("task", field_name="task_id")


class NoFilter(django_filters.FilterSet):
    """Nothing to filter by."""


class CheckpointList(ApiView):
    """Write a checkpoint; list those that the caller may read, newest first."""

    scopes = {"GET": "checkpoints:read", "POST": "checkpoints:write"}

    @extend_schema(
        operation_id="list_checkpoints",
        responses=ok("CheckpointPage"),
        parameters=list_parameters(CheckpointFilter),
    )
    def get(self, request: Request) -> Response:
        """The checkpoints that the caller may read, each in its newest version and without its state."""
        found = readable_checkpoints(self.caller(request))
        return Response(page(request, found, CheckpointFilter, _newest, "checkpoints"))

    @extend_schema(
        operation_id="write_checkpoint",
        request=CheckpointBody,
        responses={**ok("Checkpoint", 201), **ok("Checkpoint")},
        parameters=[IF_MATCH, IF_NONE_MATCH],
        description="Write the next version of the caller's checkpoint about a subject: 201 for the first one,"
        " else 200. An equal state makes a new version too. With `expected_version` (0: there must be none yet)"
        " it is written only on top of that version. About a task only its holder writes, with `run_id` and"
        " `epoch`: the versions of all its holders are one line, so that the next holder goes on from the version"
        f" in its context. {ETAG}",
    )
    def post(self, request: Request) -> Response:
        """Write the next version of the caller's checkpoint about a subject."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, CheckpointBody)
        if "run_id" in body or "epoch" in body:
            for name in ("run_id", "epoch"):
                if name not in body:
                    raise invalid(name, "is needed where a run speaks: send run_id and epoch, both or none.")
            body["run_id"] = field_id("run", "run_id", body["run_id"])
        expected = _expected(request)
        if expected is not None and body.setdefault("expected_version", expected) != expected:
            raise invalid("expected_version", "differs from the If-Match header. Send one of them.")

        def work() -> tuple[int, Any]:
            version = checkpoints.write(caller, **body)
            return 201 if version.version == 1 else 200, checkpoint_json(version, state=False)

        return _tagged(self.act(request, work))


class CheckpointDetail(ApiView):
    """One checkpoint."""

    scopes = {"GET": "checkpoints:read"}

    @extend_schema(
        operation_id="get_checkpoint",
        responses=ok("CheckpointDetail"),
        parameters=query_parameters({"version": integer("An earlier version.", 1, INT_MAX)}),
        description=f"A version of a checkpoint with its state: the newest one, or `version`. {ETAG}",
    )
    def get(self, request: Request, checkpoint_id: str) -> Response:
        """The checkpoint with its state."""
        query = self.query(request, VersionQuery)
        number = int(query["version"]) if "version" in query else None
        if number is not None and number > INT_MAX:
            raise invalid("version", f"must be at most {INT_MAX}.")
        found = checkpoints.find(self.caller(request), path_id("ckpt", checkpoint_id), number)
        return _tagged(Response(checkpoint_json(found, state=True)))


class CheckpointHistory(ApiView):
    """The versions of a checkpoint."""

    scopes = {"GET": "checkpoints:read"}

    @extend_schema(
        operation_id="list_checkpoint_versions",
        responses=ok("CheckpointHistory"),
        parameters=list_parameters(NoFilter),
    )
    def get(self, request: Request, checkpoint_id: str) -> Response:
        """The versions that the caller may read, newest first, without their states."""
        found = checkpoints.history(self.caller(request), path_id("ckpt", checkpoint_id))
        return Response(page(request, found, NoFilter, _entry, "versions", number="version"))


def _newest(checkpoint: Checkpoint) -> dict[str, Any]:
    (version,) = checkpoint.newest  # type: ignore[attr-defined]
    return checkpoint_json(version, state=False)


def _entry(version: CheckpointVersion) -> dict[str, Any]:
    return {**version_json(version), "created_at": stamp(version.created_at)}


def _expected(request: Request) -> int | None:
    """The version in `If-Match`, if the header is there; 0 for `If-None-Match: *`."""
    given, none = request.META.get("HTTP_IF_MATCH"), request.META.get("HTTP_IF_NONE_MATCH")
    if none is not None and (none != "*" or given is not None):
        raise invalid("If-None-Match", "must be * and stand alone: there must be no checkpoint yet.")
    if given is None:
        return None if none is None else 0
    found = VERSION.fullmatch(given)
    if found is None or int(found[1]) > INT_MAX:
        raise invalid("If-Match", 'must be one version in quotes, such as "3".')
    return int(found[1])


def _tagged(response: Response) -> Response:
    response["ETag"] = f'"{response.data["version"]}"'
    return response
