"""Engines: what the policy's answers come from, behind one interface.

    transformers    in this process, with our own sampling loop           (`local`)
    vllm            in this process, where it is installed beside us      (`in_process`, `guard`)
                    or as a server in an environment of its own           (`served`, `keeper`)
    sglang          as a server in an environment of its own
    endpoint        any server that speaks OpenAI's completions           (`completions`)

Which engine, and in which version, decides the numbers and so belongs to a stage's identity
(`identity`); where it is installed and on which port it listens does not (`environment`).

Every engine gets the same tokens (`rendering`), the same sampling and a seed of its own for each
answer (`request`), so neither the order of the requests nor what is answered beside them decides
anything but rounding. Answers are kept as they come (`kept`), so that a run that was killed among
sixty thousand of them goes on where it was.
"""
