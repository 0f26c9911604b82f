"""The steps by which the tables of stored responses came about; Alembic runs them."""
