"""File names of a job's input and output; the server reads by the same ones what is written here."""

from clearway.wire.patterns import ARRAY_OUTPUT_DEFAULT, OUTPUT_DEFAULT, FileNames, fill_pattern

__all__ = ["ARRAY_OUTPUT_DEFAULT", "OUTPUT_DEFAULT", "FileNames", "fill_pattern"]
