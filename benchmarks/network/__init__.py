"""Ray on a network of this machine that can be cut, slowed and made to lose packets."""
