"""The simulator with a clock: iterations and messages take seconds, and happen one after the other."""
