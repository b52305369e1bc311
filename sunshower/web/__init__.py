"""The page of `sunshower ui`: an HTTP server for plain data, and the files that browsers load."""
