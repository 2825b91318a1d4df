"""Two programs that compute the same in other ways, and the same with an error that can be switched on.

The line of an error ends with `# wrong: name`.
"""
