from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0046_indexes_of_sessions"),
    ]

    operations = [
        migrations.AddField(
            model_name="endusersession",
            name="enrollment_digest",
            field=models.BinaryField(null=True),
        ),
        migrations.AddField(
            model_name="endusersession",
            name="enrollment_network",
            field=models.CharField(max_length=50, null=True),
        ),
    ]
