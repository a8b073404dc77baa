from django.db import migrations


class Migration(migrations.Migration):
    """The state only: the database knows no plurals."""

    dependencies = [("coordination", "0012_waived_dependencies")]

    operations = [
        migrations.AlterModelOptions("taskdependency", {"verbose_name_plural": "task dependencies"}),
        migrations.AlterModelOptions("delivery", {"ordering": ["-id"], "verbose_name_plural": "deliveries"}),
    ]
