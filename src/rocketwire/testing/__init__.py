"""For tests of applications: a pytest plugin, a virtual clock, a simulated network."""
