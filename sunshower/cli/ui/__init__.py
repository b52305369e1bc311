"""`sunshower ui`: a web page that shows running topologies, and the plain data that it reads."""
