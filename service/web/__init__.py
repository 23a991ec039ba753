"""Pages: server-rendered, without scripts, each with a ``.json`` twin. A page shows what an action found."""
