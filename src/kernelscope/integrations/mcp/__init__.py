"""The commands as tools of the Model Context Protocol, for coding assistants."""
