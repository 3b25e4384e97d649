"""The commands of the socket: the table, its catalog, and a module for each group of them."""
