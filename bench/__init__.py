"""Speed, measured side by side: our paths, bare sockets, and Apache's Java and Go clients."""
