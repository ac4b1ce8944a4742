"""The tables, as Django's models."""

from typing import ClassVar

from django.db import models

from rocketwire.integrations.outbox.rows import LEASES, TABLE, WAITING


class OutboxMessage(models.Model):
    """A message that waits, was sent, or was put aside."""

    id = models.BigAutoField(primary_key=True)
    outbox_id = models.CharField(max_length=36, unique=True)
    topic = models.CharField(max_length=255)
    shard = models.SmallIntegerField()
    sharding_key = models.TextField(null=True)
    body = models.BinaryField()
    details = models.TextField()
    state = models.SmallIntegerField(default=WAITING)
    created_at = models.FloatField()
    sent_at = models.FloatField(null=True)
    attempts = models.IntegerField(default=0)
    error = models.TextField(null=True)

    class Meta:
        """Where it is."""

        db_table = TABLE
        indexes: ClassVar = [
            models.Index(fields=["state", "shard", "id"], name=f"{TABLE}_waiting"),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.outbox_id}"


class OutboxLease(models.Model):
    """Which relay has which shard."""

    name = models.CharField(max_length=64, primary_key=True)
    owner = models.CharField(max_length=64)
    beat = models.BigIntegerField()

    class Meta:
        """Where it is."""

        db_table = LEASES

    def __str__(self) -> str:
        return f"{self.name} {self.owner}"
