"""`sunshower ui`: an HTTP server with a web page, and the plain data that the page reads."""
