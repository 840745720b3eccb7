"""The results of a run: its files, tables, plots and report."""
