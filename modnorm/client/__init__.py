"""The SDK: the part of the library that calls a lab."""
