"""A fuzzer of all rpcs of a lab, listed by reflection; `python -m verification.fuzz`."""
