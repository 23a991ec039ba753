"""When things are done. Each loop calls an action; none decides anything."""
