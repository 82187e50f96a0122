"""Writes a library that counts the calls of every MPI function: the counts of Annals are compared with it.

usage: count.py COMPILER > count.c

The functions are those that the compiler's own mpi.h declares, and not Annals' table. When the process ends, each
function's name and count go to $MPI_COUNTS/<pid>.
"""

import re
import subprocess
import sys
import tempfile

with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
    file.write("#include <mpi.h>\n")
    file.flush()
    source = subprocess.run([sys.argv[1], "-E", "-P", file.name], capture_output=True, text=True,
                            check=True).stdout
source = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", source)
functions = {}
pattern = r"(?<![\w(*])(int|double|MPI_\w+)\s+(MPI_[A-Z]\w*[a-z]\w*)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;"
for returned, name, arguments in re.findall(pattern, source):
    if re.search(r"_(fn|function|FN)$", name) or name.startswith("MPI_T_"):
        continue
    functions[name] = (returned, re.sub(r"\s+", " ", arguments).strip())
if "MPI_Send" not in functions:
    sys.exit("count.py: mpi.h declares no MPI_Send")

print("#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>")
print("enum {", ", ".join("N_" + name for name in functions), "};")
print("static long counts[%d];" % len(functions))
print("static const char *names[] = {", ", ".join('"%s"' % name for name in functions), "};")
print("""__attribute__((destructor)) static void tell(void) {
    char path[4096];
    const char *directory = getenv("MPI_COUNTS");
    if (!directory) return;
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    FILE *file = fopen(path, "w");
    if (!file) return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i]) fprintf(file, "%s %ld\\n", names[i], counts[i]);
    fclose(file);
}""")
for name, (returned, arguments) in functions.items():
    parts, depth, part = [], 0, ""
    for character in arguments + ",":
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    if parts == ["void"] or parts == [""]:
        parts, used = [], []
        arguments = "void"
    else:
        used = []
        for part in parts:
            function = re.search(r"\(\s*\*\s*(\w+)\s*\)", part)
            used.append(function.group(1) if function else re.sub(r"\[[^]]*\]", "", part).split()[-1].lstrip("*"))
    used = [word for word in used if word != "..."]
    count = "__atomic_fetch_add(&counts[N_%s], 1, __ATOMIC_RELAXED);" % name
    print("#undef %s\n#undef P%s" % (name, name))
    print("%s %s(%s) { %s return P%s(%s); }" % (returned, name, arguments, count, name, ", ".join(used)))
