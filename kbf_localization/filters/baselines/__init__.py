"""The methods that the kernel Bayes filter is compared with."""
