"""`/v1/webhooks`: who is told of the organization's events over HTTP, and what became of it."""

from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import outgoing, webhooks
from coordination.models import Delivery, DeliveryStatus, Webhook
from coordination.times import stamp
from titen.api.doors import Answer, transact
from titen.api.fields import Flag, Line, StrictSerializer, Text
from titen.api.ids import maybe_id, path_id, public_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import invalid

from .bodies import NoBody
from .paging import list_parameters, page

KINDS_LIMIT = 50


def kinds(**options: Any) -> serializers.ListField:
    """`task.completed` or `task.*`; an empty list is everything."""
    return serializers.ListField(child=Line(max_length=60), max_length=KINDS_LIMIT, **options)


class WebhookBody(StrictSerializer):
    """`POST /v1/webhooks`."""

    url = Line(max_length=outgoing.URL_LIMIT)
    kinds = kinds(required=False)
    description = Text(required=False, allow_blank=True, max_length=200)


class WebhookChange(StrictSerializer):
    """`PATCH /v1/webhooks/:id`; what is absent stays as it is."""

    url = Line(required=False, max_length=outgoing.URL_LIMIT)
    kinds = kinds(required=False)
    description = Text(required=False, allow_blank=True, max_length=200)
    paused = Flag(required=False)


class DeliveryFilter(django_filters.FilterSet):
    """Exact matches."""

    status = django_filters.ChoiceFilter(choices=DeliveryStatus.choices)


def webhook_json(webhook: Webhook) -> dict[str, Any]:
    """A webhook without its secret, which nobody is shown again."""
    return {
        "webhook_id": public_id("whk", webhook.pk),
        "url": webhook.url,
        "kinds": webhook.kinds,
        "description": webhook.description,
        "principal_id": public_id("agent", webhook.principal_id),
        "scopes": webhook.scopes,
        "status": _status(webhook),
        "pause_reason": webhook.pause_reason or None,
        "paused_at": stamp(webhook.paused_at),
        "failures_in_a_row": webhook.failures_in_a_row,
        "created_at": stamp(webhook.created_at),
        "deleted_at": stamp(webhook.deleted_at),
    }


def _status(webhook: Webhook) -> str:
    if webhook.deleted_at is not None:
        return "deleted"
    if webhook.principal.disabled_at is not None:
        return "stopped"
    return "active" if webhook.paused_at is None else "paused"


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    """A delivery and its last attempt; what the receiver said is not kept."""
    owed = delivery.status == DeliveryStatus.PENDING
    return {
        "delivery_id": public_id("dlv", delivery.pk),
        "webhook_id": public_id("whk", delivery.webhook_id),
        "kind": delivery.kind,
        "event_id": maybe_id("evt", delivery.event_id),
        "cursor": None if delivery.position is None else str(delivery.position),
        "status": delivery.status,
        "attempt_count": delivery.attempt_count,
        "response_status": delivery.response_status,
        "problem": delivery.problem or None,
        "duration_ms": delivery.duration_ms,
        "created_at": stamp(delivery.created_at),
        "last_attempt_at": stamp(delivery.last_attempt_at),
        "next_attempt_at": stamp(delivery.next_attempt_at) if owed else None,
        "ended_at": stamp(delivery.ended_at),
    }


def check_url(url: str) -> None:
    """`VALIDATION_ERROR` unless the URL may be sent to. Asks name servers, so it comes before the transaction."""
    try:
        outgoing.check(url)
    except outgoing.NotAllowedError as problem:
        raise invalid("url", problem.sentence) from None


class WebhookView(ApiView):
    """For keys with `webhooks:manage`."""

    scopes = dict.fromkeys(("GET", "POST", "PATCH", "DELETE"), "webhooks:manage")


class WebhookList(WebhookView):
    """The organization's webhooks."""

    answers_with_secret = True

    @extend_schema(operation_id="list_webhooks", responses=ok("Webhooks"))
    def get(self, request: Request) -> Response:
        """Those that were not deleted, newest first."""
        self.nothing_else(request)
        found = (
            Webhook.objects.filter(organization_id=self.caller(request).organization_id, deleted_at=None)
            .select_related("principal")
            .order_by("-pk")
        )
        return Response({"webhooks": [webhook_json(webhook) for webhook in found]})

    @extend_schema(operation_id="create_webhook", request=WebhookBody, responses=ok("NewWebhook", 201))
    def post(self, request: Request) -> Response:
        """Have events sent to an address; needs `events:read` too. It sees what this key sees.

        The secret that signs stands in this answer only. It is stored encrypted, for a repeat with the same
        `Idempotency-Key` and the same API key.
        """
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, WebhookBody)
        check_url(body["url"])

        def work() -> Answer:
            webhook, secret = webhooks.create(caller, **body)
            return 201, {**webhook_json(webhook), "secret": secret}

        return self.act(request, work)


class WebhookDetail(WebhookView):
    """One webhook."""

    @extend_schema(operation_id="get_webhook", responses=ok("Webhook"))
    def get(self, request: Request, webhook_id: str) -> Response:
        """The webhook, also after its deletion."""
        self.nothing_else(request)
        found = webhooks.find(self.caller(request).organization_id, path_id("whk", webhook_id))
        return Response(webhook_json(found))

    @extend_schema(operation_id="change_webhook", request=WebhookChange, responses=ok("Webhook"))
    def patch(self, request: Request, webhook_id: str) -> Response:
        """Change it, pause it, let it go on. With another `url` or `kinds` it sees what this key sees."""
        self.nothing_else(request)
        caller, webhook = self.caller(request), path_id("whk", webhook_id)
        body = self.body(request, WebhookChange)
        if "url" in body:
            check_url(body["url"])
        return Response(webhook_json(transact(lambda: webhooks.change(caller, webhook, **body))))

    @extend_schema(operation_id="delete_webhook", request=None, responses=ok("Webhook"))
    def delete(self, request: Request, webhook_id: str) -> Response:
        """Send nothing more; what it is owed is cancelled, and its deliveries stay listed."""
        self.nothing_else(request)
        caller, webhook = self.caller(request), path_id("whk", webhook_id)
        self.body(request, NoBody)
        return Response(webhook_json(transact(lambda: webhooks.delete(caller, webhook))))


class WebhookSecret(WebhookView):
    """Another secret."""

    answers_with_secret = True

    @extend_schema(operation_id="rotate_webhook_secret", request=NoBody, responses=ok("NewWebhook"))
    def post(self, request: Request, webhook_id: str) -> Response:
        """A new secret, in this answer only. For 24 hours the one before signs beside it."""
        self.nothing_else(request)
        self.body(request, NoBody)
        caller, webhook = self.caller(request), path_id("whk", webhook_id)

        def work() -> Answer:
            changed, secret = webhooks.rotate_secret(caller, webhook)
            return 200, {**webhook_json(changed), "secret": secret}

        return self.act(request, work)


class WebhookTest(WebhookView):
    """A ping."""

    @extend_schema(operation_id="test_webhook", request=NoBody, responses=ok("Delivery", 201))
    def post(self, request: Request, webhook_id: str) -> Response:
        """Send `webhook.ping`, once; read what came of it in the delivery."""
        self.nothing_else(request)
        self.body(request, NoBody)
        caller, webhook = self.caller(request), path_id("whk", webhook_id)
        return self.act(request, lambda: (201, delivery_json(webhooks.ping(caller, webhook))))


class DeliveryList(WebhookView):
    """What a webhook got and is owed."""

    @extend_schema(
        operation_id="list_deliveries",
        responses=ok("DeliveryPage"),
        parameters=list_parameters(DeliveryFilter),
    )
    def get(self, request: Request, webhook_id: str) -> Response:
        """Newest first. What has ended is listed for 30 days."""
        webhook = webhooks.find(self.caller(request).organization_id, path_id("whk", webhook_id))
        found = Delivery.objects.filter(webhook_id=webhook.pk)
        return Response(page(request, found, DeliveryFilter, delivery_json, "deliveries"))


class DeliveryAgain(WebhookView):
    """Send one again."""

    @extend_schema(operation_id="redeliver", request=NoBody, responses=ok("Delivery"))
    def post(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        """At once, with the same id and body; one that is still owed need not wait for its next attempt."""
        self.nothing_else(request)
        self.body(request, NoBody)
        caller = self.caller(request)
        webhook, delivery = path_id("whk", webhook_id), path_id("dlv", delivery_id)

        def work() -> Answer:
            again = webhooks.redeliver(
                caller.organization_id, webhook, delivery, actor_id=caller.principal_id
            )
            return 200, delivery_json(again)

        return self.act(request, work)
