"""How a topology behaves: facts in, orders out, without Ray, clock, socket or chance of its own."""
