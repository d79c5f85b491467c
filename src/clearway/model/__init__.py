"""The nouns: frozen values, ids, units, events, commands. Imports nothing of Clearway outside this package.

The public face is the modules' names; import from the module that defines a noun, for example
`from clearway.model.jobs import JobSpec`.
"""
