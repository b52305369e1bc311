"""The modules of user programs on Ray, and the process that loads the code of an upgrade."""
