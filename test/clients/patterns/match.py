# Matches patterns. Reads lines of a pattern and a text in base64. Prints 1 for a match, else 0.
import base64
import re
import sys

for line in sys.stdin:
    pattern, text = (base64.b64decode(part).decode() for part in line.rstrip("\n").split("\t"))
    print(int(re.search(pattern, text) is not None))
