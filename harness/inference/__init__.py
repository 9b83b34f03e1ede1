"""Inference: what the policy's answers come from, behind one interface.

    transformers    in this process, with our own sampling loop        (`transformers_engine`)
    vllm            in this process, or a server in an environment     (`served`)
                    of its own
    sglang          as a server in an environment of its own           (`served`)
    endpoint        any server that speaks OpenAI's completions        (`served`)

Which engine, and in which version, decides the numbers and so belongs to a stage's identity
(`identity`); where it is installed and on which port it listens does not (`environment`).

Every engine gets the same tokens, the same sampling and a seed of its own for each answer
(`request`), so neither the order of the requests nor what is answered beside them decides anything
but rounding. Answers are kept as they come (`solver`), so that a run that was killed
among sixty thousand of them goes on where it was. `logprob_check` says whether an engine and the
trainer agree on what the policy is.
"""
