"""The board's routes."""

from django.urls import path

from . import key_views, leases_views, passing_views, task_views, views
from .leases_views import on_lease
from .passing_views import on_handoff
from .task_views import on_run, on_task

urlpatterns = [
    path("", views.board, name="board"),
    path("login", views.LogIn.as_view(), name="login"),
    path("logout", views.LogOut.as_view(), name="logout"),
    path("keys", key_views.page, name="keys"),
    path("keys/agents", key_views.make_agent, name="make-agent"),
    path("keys/new", key_views.make_key, name="make-key"),
    path("keys/<str:key_id>/revoke", key_views.revoke_key, name="revoke-key"),
    path("leases", leases_views.page, name="leases"),
    path("leases/<str:lease_id>/revoke", on_lease(leases_views.revoke), name="revoke-lease"),
    path("leases/<str:lease_id>/messages", on_lease(leases_views.ask_holder), name="ask-holder"),
    path("messages", passing_views.page, name="messages"),
    path("messages/new", passing_views.send, name="send-message"),
    path("messages/<str:message_id>/read", passing_views.mark_read, name="read-message"),
    path("handoffs/<str:handoff_id>/accept", passing_views.accept, name="accept-handoff"),
    path("handoffs/<str:handoff_id>/reject", on_handoff(passing_views.reject), name="reject-handoff"),
    path("handoffs/<str:handoff_id>/withdraw", on_handoff(passing_views.withdraw), name="withdraw-handoff"),
    path("tasks/<str:task_id>", task_views.page, name="task"),
    path("tasks/<str:task_id>/takeover", on_task(task_views.take_over), name="take-over"),
    path("tasks/<str:task_id>/block", on_task(task_views.block), name="block"),
    path("tasks/<str:task_id>/unblock", on_task(task_views.unblock), name="unblock"),
    path("tasks/<str:task_id>/reopen", on_task(task_views.reopen), name="reopen"),
    path("tasks/<str:task_id>/priority", on_task(task_views.priority), name="priority"),
    path("tasks/<str:task_id>/cancel", on_task(task_views.cancel), name="cancel"),
    path("tasks/<str:task_id>/comments", on_task(task_views.comment), name="comment"),
    path("tasks/<str:task_id>/comments/<str:comment_id>/answer", task_views.answer, name="answer"),
    path("runs/<str:run_id>/complete", on_run(task_views.complete), name="complete"),
    path("runs/<str:run_id>/fail", on_run(task_views.fail), name="fail"),
    path("runs/<str:run_id>/release", on_run(task_views.release), name="release"),
    path("runs/<str:run_id>/checkpoint", on_run(task_views.checkpoint), name="checkpoint"),
]
