"""What operators look at and change, as operations: one module for each kind of thing."""
