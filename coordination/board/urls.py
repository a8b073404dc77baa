"""The board's routes."""

from django.urls import path

from . import key_views, task_views, views
from .task_views import on_run, on_task

urlpatterns = [
    path("", views.board, name="board"),
    path("login", views.LogIn.as_view(), name="login"),
    path("logout", views.LogOut.as_view(), name="logout"),
    path("keys", key_views.page, name="keys"),
    path("keys/agents", key_views.make_agent, name="make-agent"),
    path("keys/new", key_views.make_key, name="make-key"),
    path("keys/<str:key_id>/revoke", key_views.revoke_key, name="revoke-key"),
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
