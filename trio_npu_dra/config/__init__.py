"""What a claim may configure: the model, its words, and what is made of it.

`model` is the only source. `words` says what is wrong with a config, `effective` what several come
to, `manifests` finds them in YAML. `generate` writes from the model the JSON schema, the admission
policy and the page for people.
"""
