"""`/healthz`: the process answers. `/readyz`: its database does too, takes writes, and is migrated."""

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from titen.errors import Refused

from .envelope import refusal_page, takes_no_writes


def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when the database answers, takes writes and every migration has been applied; else 503."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('transaction_read_only')::boolean")
            if cursor.fetchone()[0]:
                return refusal_page(takes_no_writes())
        executor = MigrationExecutor(connection)
        behind = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError:
        behind = True
    if behind:
        return refusal_page(Refused("NOT_READY", retry_after=1))
    return JsonResponse({"status": "ready"})
