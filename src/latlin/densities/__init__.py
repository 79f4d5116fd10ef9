"""Floor 1: densities over w and the covariance structures behind them."""
