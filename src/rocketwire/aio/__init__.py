"""The asyncio shell: one multiplexed connection per broker for the operations of core."""
