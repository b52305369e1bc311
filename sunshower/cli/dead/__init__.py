"""`sunshower dead`: dead letters in files and Kafka topics, and their replay."""
