"""Speed, as ratios against a named reference measured in the same run."""
