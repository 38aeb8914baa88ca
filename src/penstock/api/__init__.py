"""What can be asked of a broker and how it is written: units and argument checks, one of each for every way in."""
