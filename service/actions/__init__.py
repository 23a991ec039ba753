"""What can be done, one function each. The only place where domain and store meet."""
