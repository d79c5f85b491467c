"""The journal and the rows made from it, in a relational database."""
