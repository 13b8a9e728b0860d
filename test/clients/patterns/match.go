// Matches patterns. Reads lines of a pattern and a text in base64. Prints 1 for a match, else 0.
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strings"
)

func text(part string) string {
	bytes, err := base64.StdEncoding.DecodeString(part)
	if err != nil {
		panic(err)
	}
	return string(bytes)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), "\t")
		if regexp.MustCompile(text(parts[0])).MatchString(text(parts[1])) {
			fmt.Println(1)
		} else {
			fmt.Println(0)
		}
	}
}
