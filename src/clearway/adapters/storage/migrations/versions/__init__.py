"""The changes of the tables, oldest first. A change that was released is never altered."""
