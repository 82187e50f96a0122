"""Starts a program whose parent exits before any process has waited for it.

orphan.py careless COMMAND...   runs a command; processes that it leaves become children of this one, which does not wait
                                for them, as the first process of some containers does not
orphan.py launcher COMMAND...   starts a command, and exits when that has ended, without waiting for it
"""

import ctypes
import os
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36

how, command = sys.argv[1], sys.argv[2:]
if how == "careless":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.exit(subprocess.run(command).returncode)
child = os.spawnvp(os.P_NOWAIT, command[0], command)
while True:
    with open(f"/proc/{child}/stat") as stat:
        state = stat.read().rsplit(")", 1)[1].split()[0]
    if state == "Z":
        os._exit(0)
    time.sleep(0.01)
