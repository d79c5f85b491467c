"""Run by Alembic: carries out the changes on the connection that `schema.migrate` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
