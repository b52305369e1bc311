"""Windows over streams: kinds, contents, and the watermarks that end them."""
