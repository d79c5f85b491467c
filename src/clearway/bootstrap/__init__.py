"""The composition root: turns what a person named (files, specifications, policies) into objects, and runs them.

The only package that names concrete readers, policies and drivers together. It prints nothing: `cli` shows results.
"""
