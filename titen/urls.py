"""Every route: the API for agents, the board for humans, the admin for audit."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from approvals.api import views as approvals
from coordination.api import comments, events, humans, identity, runs, tasks
from titen.api import docs, health

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
    path("approvals", approvals.ApprovalList.as_view()),
    path("approvals/<str:approval_id>", approvals.ApprovalDetail.as_view()),
    path("approvals/<str:approval_id>/cancel", approvals.ApprovalCancel.as_view()),
    path("approvals/<str:approval_id>/decide", approvals.ApprovalDecide.as_view()),
    path("events", events.EventList.as_view()),
    path("principal", identity.WhoAmI.as_view()),
    path("principals", identity.PrincipalList.as_view()),
    path("keys", identity.KeyList.as_view()),
    path("keys/<str:key_id>", identity.KeyDetail.as_view()),
]

urlpatterns = [
    path("v1/", include(v1)),
    path("api/openapi.json", docs.schema, name="openapi"),
    path("api/docs", docs.page, name="docs"),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    # One login, throttled, for both.
    path("admin/login/", RedirectView.as_view(pattern_name="login", query_string=True)),
    path("admin/", admin.site.urls),
    path("", include("approvals.board")),
    path("", include("coordination.board.urls")),
]

handler400 = "coordination.board.errors.bad_request"
handler403 = "coordination.board.errors.forbidden"
handler404 = "coordination.board.errors.page_not_found"
handler500 = "coordination.board.errors.server_error"
