"""The floor: the least that a request to a DRF view with a key and a durable write can cost here."""

from django.db import connection, transaction
from rest_framework.request import Request
from rest_framework.response import Response

from titen.api.views import ApiView


class Floor(ApiView):
    """A look-up of the key and a one-row UPDATE in a transaction."""

    scopes = {"POST": "tasks:claim"}

    def post(self, request: Request, row: str) -> Response:
        """Count the row's epoch up."""
        body = request.data
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE coordination_resource SET epoch = epoch + 1 WHERE id = %s", [row])
        return Response({"sent": body})
