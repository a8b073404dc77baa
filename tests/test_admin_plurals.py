"""The admin names its tables in English."""

import re

from django.apps import apps

WRONG = re.compile(r"([^aeiou]y|[sxz]|[cs]h)s$")


def test_every_table_has_a_plural() -> None:
    plurals = {model.__name__: str(model._meta.verbose_name_plural) for model in apps.get_models()}
    assert {name: plural for name, plural in plurals.items() if WRONG.search(plural)} == {}
    assert (plurals["Delivery"], plurals["ToolEntry"]) == ("deliveries", "tool entries")
