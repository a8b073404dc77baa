"""The normal routes and the floor."""

from django.urls import path

from titen.urls import handler400, handler403, handler404, handler500, urlpatterns

from .views import Floor

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]

urlpatterns = [*urlpatterns, path("v1/bench/floor/<str:row>", Floor.as_view())]
