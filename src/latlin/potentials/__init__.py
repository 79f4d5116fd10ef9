"""Floor 1: scalar functions of projections, one family a file."""
