"""The Celery application. Our job modules are called `jobs`, since a task is something else here."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "titen.settings")

app = Celery("titen")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(related_name="jobs")
