"""The application, under a label that no other has."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """The outbox as a Django application."""

    name = "rocketwire.integrations.outbox.django"
    label = "rocketmq_outbox"
    verbose_name = "RocketMQ outbox"
    default_auto_field = "django.db.models.BigAutoField"
