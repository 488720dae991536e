"""Which stream a client means, whatever its protocol calls it."""
