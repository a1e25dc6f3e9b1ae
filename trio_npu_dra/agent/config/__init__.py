"""What a claim may configure.

`model` has the rules, `words` says what is wrong with a config, `effective` what several come to.
"""
