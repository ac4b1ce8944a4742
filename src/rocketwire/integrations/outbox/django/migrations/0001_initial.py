"""The two tables of the outbox."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates them."""

    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = []

    operations: ClassVar = [
        migrations.CreateModel(
            name="OutboxLease",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("owner", models.CharField(max_length=64)),
                ("beat", models.BigIntegerField()),
            ],
            options={
                "db_table": "rocketmq_outbox_leases",
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("outbox_id", models.CharField(max_length=36, unique=True)),
                ("topic", models.CharField(max_length=255)),
                ("shard", models.SmallIntegerField()),
                ("sharding_key", models.TextField(null=True)),
                ("body", models.BinaryField()),
                ("details", models.TextField()),
                ("state", models.SmallIntegerField(default=0)),
                ("created_at", models.FloatField()),
                ("sent_at", models.FloatField(null=True)),
                ("attempts", models.IntegerField(default=0)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "db_table": "rocketmq_outbox",
                "indexes": [
                    models.Index(fields=["state", "shard", "id"], name="rocketmq_outbox_waiting")
                ],
            },
        ),
    ]
