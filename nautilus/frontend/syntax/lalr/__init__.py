"""The lexer and the LALR parser of statements, which run from tables."""
