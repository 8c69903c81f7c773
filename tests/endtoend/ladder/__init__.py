"""Every valid spec compiles: the ladder of fallbacks, and random specs at full sizes for every target."""
