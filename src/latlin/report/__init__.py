"""Floor 4: the self-contained HTML report."""
