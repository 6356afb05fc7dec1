"""The Django database backend behind the one alias of all tenant databases."""
