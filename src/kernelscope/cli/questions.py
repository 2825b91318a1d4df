"""What `kernelscope` alone prints: the questions that people come with, and the command for each."""

QUESTIONS = """\
kernelscope shows what a compiled PyTorch program really runs.

What is wrong with my script?        kernelscope why train.py
What ran, in which order?            kernelscope run train.py
                                     kernelscope show
Where does the first NaN come from?  kernelscope run --stop-on nan train.py
Why does it crash?                   kernelscope run train.py
                                     kernelscope show --crash
Does it differ from eager? Where?    kernelscope shadow train.py
Which part of the compiler is it?    kernelscope bisect train.py
Does it vary from run to run?        kernelscope determinism train.py
Where do two runs first differ?      kernelscope diff old new
What did the compiler do?            kernelscope stages
Where does the time go?              kernelscope run --time train.py
                                     kernelscope show --sort time
How do I report it as a bug?         kernelscope reduce train.py
                                     kernelscope issue
Can I look at it in a browser?       kernelscope report
Is everything recorded?              kernelscope audit train.py
Does it work on this machine?        kernelscope doctor

All commands: kernelscope --help. One of them: kernelscope COMMAND --help.
"""
