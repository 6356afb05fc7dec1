from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0016_fences_and_former_slugs")]

    operations = [
        migrations.AddField(
            model_name="finalbackup",
            name="begun_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
    ]
