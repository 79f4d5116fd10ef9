"""Floor 2: the model, the posterior, `infer` and `compare`, and one engine per file."""
