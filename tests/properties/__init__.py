"""A stateful explorer: random sequences of everything that the platform offers, and properties that hold after each step.

Lists of cases are never complete, so no case is listed here. An attacker who starts with one thing (`starts.py`) calls every
operation of the API document and sends the hosted forms, with values that fit by name (`calls.py`, `knowledge.py`, `forms.py`).
Between the attacker's steps the users and the operator live their days (`days.py`). After each step the properties of
`properties.py` must hold. `machine.py` combines them; Hypothesis draws the steps, and `running.py` shortens what fails.

`python -m tests.properties.run` explores longer and reports what was reached; `bin/explore` starts its servers.
"""
