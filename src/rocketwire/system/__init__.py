"""What both shells need of the process and the machine: clocks, names, TLS, files, instances."""
