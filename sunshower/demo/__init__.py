"""`sunshower demo`: count words on Ray, kill an actor in the middle, prove that no line is lost."""
