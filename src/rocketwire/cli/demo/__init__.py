"""``rocketwire demo``, step by step."""
