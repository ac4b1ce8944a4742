"""``rocketwire doctor``, check by check."""
