"""The modules of user programs, in the process that declares their topologies."""
