"""What draws, log p and log q say about an approximation: weights, evidence, verdicts, calibration, scores."""
