# Whether each pattern matches its text: lines of two base64 texts in, lines of 0 or 1 out.
import base64
import re
import sys

for line in sys.stdin:
    pattern, text = (base64.b64decode(part).decode() for part in line.rstrip("\n").split("\t"))
    print(int(re.search(pattern, text) is not None))
