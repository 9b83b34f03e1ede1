"""Small stand-ins for the models, data and endpoints of a real profile, made for tests.

They have the architectures, file formats and protocols of what they stand for, so that the code a
real model takes is run from end to end without a network. **A number measured on them means
nothing**: weights are random or briefly trained, and replies are drawn from digests. `command` is
the command line with them.
"""
