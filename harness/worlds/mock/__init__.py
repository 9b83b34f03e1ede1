"""Small stand-ins for the models, data and endpoints of a real profile, made on this machine.

They have the architectures, file formats and protocols of what they stand for, so that the code a
real model takes is run from end to end on a processor, in minutes and without a network. They know
nothing: weights are random or briefly trained on made-up sentences, and what the endpoints say is
drawn from the digest of what they are asked. **A number measured on them means nothing**; that a
run completes, is resumed and reports without a gap is what they are for.
"""
