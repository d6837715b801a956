"""Programs and files -> `Graph`."""
