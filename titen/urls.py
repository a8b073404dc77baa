"""Every route: the API for agents, the board for humans, the admin for audit."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from approvals.api import effects
from approvals.api import views as approvals
from coordination.api import (
    checkpoints,
    comments,
    contexts,
    document_events,
    events,
    exports,
    fencing,
    handoffs,
    humans,
    identity,
    leases,
    messages,
    runs,
    sections,
    tasks,
    webhooks,
)
from titen.api import docs, health, jwks

v1 = [
    path("tasks", tasks.TaskList.as_view()),
    path("tasks/claim", tasks.TaskClaim.as_view()),
    path("tasks/<str:task_id>", tasks.TaskDetail.as_view()),
    path("tasks/<str:task_id>/context", tasks.TaskContext.as_view()),
    path("tasks/<str:task_id>/cancel", tasks.TaskCancel.as_view()),
    path("tasks/<str:task_id>/comments", comments.CommentList.as_view()),
    path("tasks/<str:task_id>/comments/<str:comment_id>", comments.CommentDetail.as_view()),
    path("tasks/<str:task_id>/comments/<str:comment_id>/answer", comments.CommentAnswer.as_view()),
    path("tasks/<str:task_id>/takeover", humans.TaskTakeover.as_view()),
    path("tasks/<str:task_id>/reopen", humans.TaskReopen.as_view()),
    path("tasks/<str:task_id>/block", humans.TaskBlock.as_view()),
    path("tasks/<str:task_id>/unblock", humans.TaskUnblock.as_view()),
    path("tasks/<str:task_id>/priority", humans.TaskPriority.as_view()),
    path("runs", runs.RunList.as_view()),
    path("runs/<str:run_id>", runs.RunDetail.as_view()),
    path("runs/<str:run_id>/heartbeat", runs.RunHeartbeat.as_view()),
    path("runs/<str:run_id>/complete", runs.RunComplete.as_view()),
    path("runs/<str:run_id>/fail", runs.RunFail.as_view()),
    path("runs/<str:run_id>/release", runs.RunRelease.as_view()),
    path("runs/<str:run_id>/jeopardy", leases.RunJeopardy.as_view()),
    path("leases", leases.LeaseList.as_view()),
    path("leases/batch", leases.LeaseBatch.as_view()),
    path("leases/<str:lease_id>", leases.LeaseDetail.as_view()),
    path("leases/<str:lease_id>/jeopardy", leases.LeaseJeopardy.as_view()),
    path("leases/<str:lease_id>/revoke", leases.LeaseRevoke.as_view()),
    path("fencing/verify", fencing.FencingVerify.as_view()),
    path("approvals", approvals.ApprovalList.as_view()),
    path("approvals/<str:approval_id>", approvals.ApprovalDetail.as_view()),
    path("approvals/<str:approval_id>/cancel", approvals.ApprovalCancel.as_view()),
    path("approvals/<str:approval_id>/decide", approvals.ApprovalDecide.as_view()),
    path("approvals/<str:approval_id>/lift", approvals.ApprovalLift.as_view()),
    path("approvals/<str:approval_id>/withdraw", approvals.ApprovalWithdraw.as_view()),
    path("effects", effects.EffectList.as_view()),
    path("effects/<str:effect_id>", effects.EffectDetail.as_view()),
    path("effects/<str:effect_id>/outcome", effects.EffectOutcome.as_view()),
    path("effects/<str:effect_id>/reconcile", effects.EffectReconcile.as_view()),
    path("handoffs", handoffs.HandoffList.as_view()),
    path("handoffs/<str:handoff_id>", handoffs.HandoffDetail.as_view()),
    path("handoffs/<str:handoff_id>/resolve", handoffs.HandoffResolve.as_view()),
    path("handoffs/<str:handoff_id>/withdraw", handoffs.HandoffWithdraw.as_view()),
    path("messages", messages.MessageList.as_view()),
    path("messages/<str:message_id>", messages.MessageDetail.as_view()),
    path("messages/<str:message_id>/read", messages.MessageRead.as_view()),
    path("checkpoints", checkpoints.CheckpointList.as_view()),
    path("checkpoints/<str:checkpoint_id>", checkpoints.CheckpointDetail.as_view()),
    path("checkpoints/<str:checkpoint_id>/history", checkpoints.CheckpointHistory.as_view()),
    path("contexts", contexts.ContextList.as_view()),
    path("contexts/<str:context_id>", contexts.ContextDetail.as_view()),
    path("events", events.EventList.as_view()),
    path("events/stream", events.EventStream.as_view()),
    path("events/export", exports.EventExport.as_view()),
    path("webhooks", webhooks.WebhookList.as_view()),
    path("webhooks/<str:webhook_id>", webhooks.WebhookDetail.as_view()),
    path("webhooks/<str:webhook_id>/rotate_secret", webhooks.WebhookSecret.as_view()),
    path("webhooks/<str:webhook_id>/test", webhooks.WebhookTest.as_view()),
    path("webhooks/<str:webhook_id>/deliveries", webhooks.DeliveryList.as_view()),
    path(
        "webhooks/<str:webhook_id>/deliveries/<str:delivery_id>/redeliver", webhooks.DeliveryAgain.as_view()
    ),
    path("principal", identity.WhoAmI.as_view()),
    path("principals", identity.PrincipalList.as_view()),
    path("keys", identity.KeyList.as_view()),
    path("keys/<str:key_id>", identity.KeyDetail.as_view()),
]

# A section's id may hold anything, slashes too; a slug holds none, so each path means one section.
documents = [
    re_path(r"^(?P<slug>[^/]*)\Z", sections.DocumentDetail.as_view()),
    re_path(r"^(?P<slug>[^/]*)/events\Z", document_events.DocumentEvents.as_view()),
    re_path(r"^(?P<slug>[^/]*)/events/stream\Z", document_events.DocumentEventStream.as_view()),
    re_path(r"^(?P<slug>[^/]*)/sections/(?P<sid>[\s\S]*)/lease\Z", sections.SectionLease.as_view()),
]

urlpatterns = [
    path("v1/", include(v1)),
    path("api/v1/documents/", include(documents)),
    path("api/openapi.json", docs.schema, name="openapi"),
    path("api/docs", docs.page, name="docs"),
    path(".well-known/jwks.json", jwks.key_set),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    # One login, throttled, for both.
    path("admin/login/", RedirectView.as_view(pattern_name="login", query_string=True)),
    path("admin/", admin.site.urls),
    path("", include("approvals.board")),
    path("", include("approvals.board_policy")),
    path("", include("coordination.board.urls")),
]

handler400 = "coordination.board.errors.bad_request"
handler403 = "coordination.board.errors.forbidden"
handler404 = "coordination.board.errors.page_not_found"
handler500 = "coordination.board.errors.server_error"
