"""The experiments of the paper: the plan, the runs, tables and figures, and a verdict on each claim."""
