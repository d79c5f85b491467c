"""The speed of Clearway, in figures with a bar each, and beside other ways to do the same in the same run."""
