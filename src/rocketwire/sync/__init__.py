"""The blocking shell: sockets, threads and waiting for the operations of core."""
