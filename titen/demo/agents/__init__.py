"""One module per agent. Each has `handle`, which does one claimed task and ends its run."""
