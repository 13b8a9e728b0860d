// Whether each pattern matches its text: lines of two base64 texts in, lines of 0 or 1 out.
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
