"""Points: arrays and their checks, compressed rows, and the domains that points come from."""
