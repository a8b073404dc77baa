from django.db import migrations


class Migration(migrations.Migration):
    """The state only: the database knows no plurals."""

    dependencies = [("approvals", "0004_rounds_and_withdrawals")]

    operations = [migrations.AlterModelOptions("toolentry", {"verbose_name_plural": "tool entries"})]
