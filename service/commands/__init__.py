"""The command line's commands, one module per noun. Client commands speak only REST, through ``client``."""
