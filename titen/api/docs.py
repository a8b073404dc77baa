"""`/api/docs`: the OpenAPI document and a page to read it."""

from typing import Any

from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView


class Schema(SpectacularAPIView):
    """OpenAPI 3.1 as JSON, for anybody."""

    authentication_classes: Any = []
    permission_classes: Any = []
    renderer_classes: Any = [OpenApiJsonRenderer]


class Page(SpectacularSwaggerSplitView):
    """Swagger UI from our own static files, with its script apart, as the content policy asks."""

    authentication_classes: Any = []
    permission_classes: Any = []


schema = Schema.as_view()
page = Page.as_view(url_name="openapi")
