"""Generated from `proto/modnorm/v1` by `make proto`; not edited by hand."""
