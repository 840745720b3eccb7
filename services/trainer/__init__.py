"""The trainer: a worker that trains the students of distillations."""
